//! Who else is told of events, besides the store: by webhook, for example. The loop hands an event
//! over and goes on; what becomes of it there never holds up the scaling.

pub mod webhook;
pub mod windmill;

use async_trait::async_trait;

use crate::store::Event;

/// Somebody who is told of a group's events.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Takes an event over and returns at once: a change with its outcome, or an alert. Alerts come
    /// again while they last, which the store does not keep.
    fn tell(&self, event: &Event);

    /// The group ends: what was taken over is passed on, as far as that takes no long time.
    async fn close(&mut self) {}
}
