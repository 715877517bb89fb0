//! What stand-ins for control planes share: time that goes on, and answers that are lost.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Response;
use tokio::task::JoinSet;

/// Takes a step every moment until it is dropped.
pub fn clock(step: impl Fn() + Send + 'static) -> JoinSet<()> {
    let mut clock = JoinSet::new();
    clock.spawn(async move {
        loop {
            step();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    clock
}

/// An answer that ends before it is complete.
pub fn cut_off() -> Response<Body> {
    let broken =
        futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("cut")) });
    Response::new(Body::from_stream(broken))
}
