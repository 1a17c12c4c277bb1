//! Runs scripts and says which of them hold: `cargo run -p laneway-conformance --example run -- FILE...`

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        eprintln!("Give it one script or more, for example crates/conformance/scripts/handshake/passive.pkt");
        return ExitCode::from(2);
    }
    let mut failed = false;
    for file in files {
        match laneway_conformance::run_file(Path::new(&file), &file) {
            Ok(()) => println!("{file}: holds"),
            Err(e) => {
                println!("{e}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
