//! What the program logs while a test runs.

use std::sync::{Arc, LazyLock, Mutex};

/// What is logged on this thread until the guard is dropped.
pub fn listen() -> (Arc<Mutex<String>>, tracing::subscriber::DefaultGuard) {
    #[derive(Clone)]
    struct Sink(Arc<Mutex<String>>);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    // With one subscriber only, a line first met on another thread, which has none, is off for all.
    static ANOTHER: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
        tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish())
    });
    LazyLock::force(&ANOTHER);
    let log = Arc::new(Mutex::new(String::new()));
    let sink = Sink(Arc::clone(&log));
    let subscriber =
        tracing_subscriber::fmt().with_writer(move || sink.clone()).with_ansi(false).finish();
    (log, tracing::subscriber::set_default(subscriber))
}
