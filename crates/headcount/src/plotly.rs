//! The script that draws plots in a browser: plotly.js, MIT licence, as the `plotly` crate carries it.

/// plotly.js, compressed with gzip.
pub const SCRIPT_GZIP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plotly.min.js.gz"));
