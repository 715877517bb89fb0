//! The baselines as contenders of the benchmark: each as published, and a grid of settings of which
//! the best one of each cell is taken, which is more than any user could find.

use super::Bounds;
use super::aws::{self, Target, TargetTracking};
use super::dask::{self, Dask};
use super::exact::{self, ExactDemand};
use super::fixed::Fixed;
use super::judoscale::{self, Judoscale};
use super::keda::{self, Keda};
use super::knative::{self, Knative};
use super::n8n_autoscaling::{self, N8nAutoscaling};
use super::nomad::{self, TargetValue};
use super::practo::{self, Practo};
use super::reference::{self, Reference};
use super::square_root::{self, SquareRoot};
use super::windmill::{self, Windmill};
use crate::autoscaler::Autoscaler;
use crate::benchmark::{Cell, Contender};

/// A baseline and the settings it was tried with.
pub struct Family {
    /// Its name in tables.
    pub name: &'static str,
    /// The first is as published.
    pub grid: Vec<Contender>,
}

/// All baselines.
pub fn families() -> Vec<Family> {
    vec![
        Family { name: "reference rule", grid: reference_grid() },
        Family { name: "Windmill", grid: windmill_grid() },
        Family { name: "KEDA + HPA", grid: keda_grid() },
        Family { name: "AWS target tracking", grid: aws_grid() },
        Family { name: "Knative", grid: knative_grid() },
        Family { name: "Nomad target-value", grid: nomad_grid() },
        Family { name: "square-root staffing", grid: square_root_grid() },
        Family { name: "exact demand", grid: exact_grid() },
        Family { name: "Dask adaptive", grid: dask_grid() },
        Family { name: "Judoscale", grid: judoscale_grid() },
        Family { name: "Practo", grid: practo_grid() },
        Family { name: "n8n-autoscaling", grid: n8n_autoscaling_grid() },
        Family { name: "fixed", grid: fixed_grid() },
    ]
}

/// A contender with these parameters, which name it.
fn contender<P, A>(
    parameters: P,
    make: impl Fn(&Cell, Bounds, P) -> A + Sync + 'static,
) -> Contender
where
    P: std::fmt::Debug + Copy + Sync + 'static,
    A: Autoscaler + 'static,
{
    let name = format!("{parameters:?}").replace("Parameters ", "");
    let make = move |cell: &Cell, max: u32| -> Box<dyn Autoscaler> {
        Box::new(make(cell, Bounds { min: 0, max }, parameters))
    };
    Contender { name, make: Box::new(make) }
}

/// All pairs of two lists.
fn pairs<A: Copy, B: Copy>(a: &[A], b: &[B]) -> Vec<(A, B)> {
    a.iter().flat_map(|x| b.iter().map(|y| (*x, *y))).collect()
}

fn reference_grid() -> Vec<Contender> {
    let published = reference::Parameters::default();
    let mut settings = vec![published];
    for ((poll, cooldown), idle) in
        pairs(&pairs(&[5, 15, 30], &[0.0, 15.0, 30.0]), &[15.0, 60.0, 120.0])
    {
        settings.push(reference::Parameters { poll, cooldown, idle, ..published });
    }
    let make = |_: &Cell, bounds, parameters| Reference::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn windmill_grid() -> Vec<Contender> {
    let published = windmill::Parameters::default();
    let mut settings = vec![published];
    for (cooldown, (low, step)) in pairs(&[30.0, 60.0, 120.0], &pairs(&[0.25, 0.7], &[0.1, 0.5])) {
        for full_waiting in [None, Some(1.0)] {
            settings.push(windmill::Parameters {
                cooldown,
                full_cooldown: cooldown,
                low,
                step,
                full_waiting,
                ..published
            });
        }
    }
    let make = |_: &Cell, bounds, parameters| Windmill::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn keda_grid() -> Vec<Contender> {
    let published = keda::Parameters::default();
    let mut settings = vec![published];
    for ((target, stabilization), (polling_interval, idle_first)) in pairs(
        &pairs(&[0.5, 0.7, 1.0, 2.0], &[0.0, 30.0, 60.0, 300.0]),
        &pairs(&[1.0, 30.0], &[false, true]),
    ) {
        settings.push(keda::Parameters {
            target,
            stabilization,
            polling_interval,
            cooldown: stabilization,
            counts_active: true,
            behavior: true,
            idle_first,
            ..published
        });
    }
    let make = |_: &Cell, bounds, parameters| Keda::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn aws_grid() -> Vec<Contender> {
    let published = aws::Parameters::published(Target::Latency(0.0));
    let latency = |share: f64| {
        move |cell: &Cell, bounds, parameters| {
            let target = Target::Latency(share * f64::from(cell.wait));
            TargetTracking::new(bounds, aws::Parameters { target, ..parameters })
        }
    };
    let mut grid = vec![contender(published, latency(1.0))];
    for share in [0.1, 0.25, 0.5] {
        for cooldown in [0.0, 300.0] {
            grid.push(contender(aws::Parameters { cooldown, ..published }, latency(share)));
        }
    }
    let make = |_: &Cell, bounds, parameters| TargetTracking::new(bounds, parameters);
    for (backlog, (cooldown, counts_active)) in
        pairs(&[0.5, 0.8, 1.0, 2.0], &pairs(&[0.0, 300.0], &[false, true]))
    {
        let target = Target::Backlog(backlog);
        let parameters = aws::Parameters { target, cooldown, counts_active, ..published };
        grid.push(contender(parameters, make));
    }
    grid
}

fn knative_grid() -> Vec<Contender> {
    let published = knative::Parameters::default();
    let mut settings = vec![published];
    for (target, window) in pairs(&[0.5, 0.7, 1.0], &[6.0, 30.0, 60.0, 120.0]) {
        settings.push(knative::Parameters { target, window, ..published });
    }
    settings.push(knative::Parameters { target: 1.0, panic: 1.1, ..published });
    settings.push(knative::Parameters { target: 1.0, panic: 10.0, ..published });
    for scale_down_delay in [30.0, 60.0] {
        settings.push(knative::Parameters {
            target: 1.0,
            window: 6.0,
            scale_down_delay,
            ..published
        });
    }
    let make = |_: &Cell, bounds, parameters| Knative::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn nomad_grid() -> Vec<Contender> {
    let published = nomad::Parameters::default();
    let mut settings = vec![published];
    for ((target, cooldown), counts_active) in
        pairs(&pairs(&[0.5, 0.7, 1.0, 2.0], &[0.0, 30.0, 60.0, 300.0]), &[true])
    {
        settings.push(nomad::Parameters { target, cooldown, counts_active });
    }
    let make = |_: &Cell, bounds, parameters| TargetValue::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn square_root_grid() -> Vec<Contender> {
    let published = square_root::Parameters::default();
    let mut settings = vec![published];
    for (beta, window) in
        pairs(&[0.0, 0.5, 1.0, 1.5, 2.0], &[15.0, 30.0, 60.0, 120.0, 300.0, 900.0])
    {
        settings.push(square_root::Parameters { beta, window });
    }
    let make = |_: &Cell, bounds, parameters| SquareRoot::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn exact_grid() -> Vec<Contender> {
    let published = exact::Parameters::default();
    let mut settings = vec![published];
    for cooldown in [15.0, 30.0, 60.0, 120.0, 300.0, 3600.0] {
        settings.push(exact::Parameters { cooldown, ..published });
    }
    let make = |_: &Cell, bounds, parameters| ExactDemand::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn dask_grid() -> Vec<Contender> {
    let published = dask::Parameters::default();
    let mut settings = vec![published];
    for (target_duration, wait_count) in [(5.0, 30), (30.0, 60)] {
        settings.push(dask::Parameters { target_duration, wait_count });
    }
    let make = |_: &Cell, bounds, parameters| Dask::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn judoscale_grid() -> Vec<Contender> {
    let published = judoscale::Parameters::default();
    let mut settings = vec![published];
    for (upper, (out_every, in_after)) in
        pairs(&[5.0, 20.0], &[(10.0, 30.0), (10.0, 120.0), (60.0, 120.0)])
    {
        let (jump, lower) = (4, upper / 2.0);
        settings.push(judoscale::Parameters {
            upper,
            lower,
            out_every,
            in_after,
            jump,
            tracks_busy: false,
        });
    }
    let make = |_: &Cell, bounds, parameters| Judoscale::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn practo_grid() -> Vec<Contender> {
    let published = practo::Parameters::default();
    let mut settings = vec![published];
    for (target, cooldown) in pairs(&[0.7, 1.0, 2.0], &[20.0, 60.0, 120.0]) {
        settings.push(practo::Parameters { target, cooldown, ..published });
    }
    let make = |_: &Cell, bounds, parameters| Practo::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

fn n8n_autoscaling_grid() -> Vec<Contender> {
    let published = n8n_autoscaling::Parameters::default();
    let mut settings = vec![published];
    for (out_above, cooldown) in pairs(&[0.0, 2.0, 5.0], &[10.0, 60.0]) {
        settings.push(n8n_autoscaling::Parameters { out_above, cooldown, ..published });
    }
    let make = |_: &Cell, bounds, parameters| N8nAutoscaling::new(bounds, parameters);
    settings.into_iter().map(|parameters| contender(parameters, make)).collect()
}

/// As many as the peak, and shares of it.
fn fixed_grid() -> Vec<Contender> {
    let make = |_: &Cell, Bounds { max, .. }: Bounds, share: f64| {
        Fixed(((f64::from(max) * share).ceil() as u32).max(1))
    };
    [1.0, 0.75, 0.5, 0.25].map(|share| contender(share, make)).into()
}
