//! Packs the plotting script that the `plotly` crate carries: what is drawn is drawn by the browser,
//! so the program holds the script alone, compressed, and none of that crate's code.

use std::io::Write;
use std::path::Path;
use std::{env, fs};

use flate2::{Compression, write::GzEncoder};
use plotly::Plot;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = Plot::offline_js_sources();
    // Two script elements: plotly.js, and the one that draws formulas, of which we have none.
    let script = sources
        .split_once('>')
        .and_then(|(_, rest)| rest.split_once("</script>"))
        .map(|(script, _)| script)
        .expect("the first element is a script");
    assert!(script.contains("plotly.js v3."), "the first script is plotly.js, with its licence");
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(script.as_bytes()).expect("memory can be written");
    let packed = packed.finish().expect("memory can be written");
    let folder = env::var_os("OUT_DIR").expect("cargo names the folder");
    fs::write(Path::new(&folder).join("plotly.min.js.gz"), packed).expect("it can be written");
}
