//! A fixed number of workers: what most fleets run today.

use headcount_core::{Observation, Span};

use crate::autoscaler::{Autoscaler, Victims};

/// The number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub u32);

impl Autoscaler for Fixed {
    fn name(&self) -> &str {
        "fixed"
    }

    fn poll(&self) -> Span {
        Span::from_secs(30)
    }

    fn victims(&self) -> Victims {
        Victims::IdleFirst
    }

    fn wanted(&mut self, _: &Observation) -> Option<u32> {
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn it_is_fixed() {
        check(&mut Fixed(3), &[(0.0, 9, 0, 0, 0, Some(3)), (30.0, 9, 3, 3, 0, None)]);
    }
}
