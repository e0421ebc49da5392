//! The binary: hands over to the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    // Before anything else: the keeper forks, so nothing may have started a thread.
    if args.first().is_some_and(|first| first == "keeper") {
        return handoffd::keeper::main(&args[1..]);
    }
    handoffd::cli::main()
}
