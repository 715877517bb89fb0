//! Hears messages on channels of a Redis, over a connection of its own: a subscription needs one.
//! It subscribes again by itself whenever the connection broke.

use ::redis::aio::{PubSubSink, PubSubStream};
use ::redis::{Msg, RedisResult, Value};
use futures_util::StreamExt;
use headcount_core::Missing;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Redis;
use super::missing::{closed, lacks_right, missing, timed_out};
use crate::limits::{RECONNECT_BACK_OFF_MAX, REDIS_PING_EVERY};
use crate::unreached::back_off;

/// A channel, or all channels that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A channel.
    Channel(String),
    /// A pattern, as `PSUBSCRIBE` takes it.
    Pattern(String),
}

/// What a listener tells.
pub enum Heard<'a> {
    /// It hears from now on; what was said before may have been missed.
    Connected,
    /// A message.
    Message(&'a Msg),
}

/// Whether a listener hears.
#[derive(Clone, Debug, PartialEq)]
pub enum Hearing {
    /// It never heard yet.
    NotYet,
    /// It hears all topics but those which the user may not hear.
    Hears {
        /// The topics that Redis refused.
        denied: Vec<Topic>,
    },
    /// The connection is broken; it tries again.
    Lost(Missing),
}

/// Listens until it is dropped.
pub struct Listener {
    task: JoinHandle<()>,
    hearing: watch::Receiver<Hearing>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    /// Whether it hears, and news of that.
    pub const fn hearing(&self) -> &watch::Receiver<Hearing> {
        &self.hearing
    }
}

impl Redis {
    /// Hands everything said on `topics` to `hear`, which must not block.
    pub fn listen(
        &self,
        topics: Vec<Topic>,
        mut hear: impl FnMut(Heard<'_>) + Send + 'static,
    ) -> Listener {
        let (tell, hearing) = watch::channel(Hearing::NotYet);
        let redis = self.clone();
        let task = tokio::spawn(async move {
            let mut failures = 0_u32;
            loop {
                let began = Instant::now();
                let why = redis.listen_once(failures, &topics, &tell, &mut hear).await;
                tell.send_replace(Hearing::Lost(why));
                let lasted = began.elapsed() > 2 * RECONNECT_BACK_OFF_MAX;
                failures = if lasted { 0 } else { failures.saturating_add(1) };
                sleep(back_off(failures)).await;
            }
        });
        Listener { task, hearing }
    }

    async fn listen_once(
        &self,
        attempt: u32,
        topics: &[Topic],
        tell: &watch::Sender<Hearing>,
        hear: &mut (impl FnMut(Heard<'_>) + Send),
    ) -> Missing {
        let limit = self.0.login().connect_timeout();
        let (sink, stream, denied) =
            match timeout(limit, self.subscribe(attempt as usize, topics)).await {
                Ok(Ok(subscribed)) => subscribed,
                Ok(Err(error)) => {
                    self.0.read_again();
                    return missing(&error, self.place());
                }
                Err(_) => return timed_out(self.place(), limit),
            };
        tell.send_replace(Hearing::Hears { denied });
        hear(Heard::Connected);
        self.hear_all(sink, stream, hear).await
    }

    async fn subscribe(
        &self,
        attempt: usize,
        topics: &[Topic],
    ) -> RedisResult<(PubSubSink, PubSubStream, Vec<Topic>)> {
        let client = self.0.subscribe_at(attempt).await?;
        let (mut sink, stream) = client.get_async_pubsub().await?.split();
        let mut denied = Vec::new();
        for topic in topics {
            let subscribed = match topic {
                Topic::Channel(name) => sink.subscribe(name).await,
                Topic::Pattern(pattern) => sink.psubscribe(pattern).await,
            };
            match subscribed {
                Err(error) if lacks_right(&error) => denied.push(topic.clone()),
                other => other?,
            }
        }
        Ok((sink, stream, denied))
    }

    /// Until the connection breaks. It asks now and then whether the other side is still there: a
    /// dead one sends nothing, just as a quiet one.
    async fn hear_all(
        &self,
        mut sink: PubSubSink,
        mut stream: PubSubStream,
        hear: &mut (impl FnMut(Heard<'_>) + Send),
    ) -> Missing {
        let limit = self.0.login().reply_timeout();
        loop {
            match timeout(REDIS_PING_EVERY, stream.next()).await {
                Ok(Some(message)) => hear(Heard::Message(&message)),
                Ok(None) => return closed(self.place()),
                Err(_) => match timeout(limit, sink.ping::<Value>()).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return missing(&error, self.place()),
                    Err(_) => return timed_out(self.place(), limit),
                },
            }
        }
    }
}
