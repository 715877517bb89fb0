//! Runs the program as a user does.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a run printed and how it ended.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// `headcount` with these arguments, in `folder`, with nothing of this machine's configuration.
pub fn headcount(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headcount"));
    command.args(args).current_dir(folder).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("HOME", folder).env("HEADCOUNT_STATE_DIR", folder.join("state"));
    command
}

/// Runs it to its end with this standard input.
pub fn run(mut command: Command, input: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let input = input.to_vec();
    // It may end before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the program can be waited for");
    writer.join().expect("writing does not panic");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Ran {
        code: output.status.code().expect("the program was not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}
