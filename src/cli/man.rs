//! `handoffd man`: manual pages, made from the same words as `--help`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::cli::{Cli, Global, Outcome, out};

#[derive(Debug, Args)]
pub struct Options {
    /// Write a page for every command into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn man(_global: &Global, options: &Options) -> Outcome {
    let command = Cli::command();
    let Some(folder) = &options.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        out::put(page)?;
        return Ok(0);
    };
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)?;
    out::talk!("wrote manual pages to {}", folder.display());
    Ok(0)
}
