//! Why a daemon does not start, and whether the next start may.
//!
//! The service manager starts it again after a passing failure, and leaves it stopped after one that
//! somebody must fix first.

use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use crate::config::ConfigError;
use crate::durable;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("another handoffd runs on {root}{}", pid.map(|pid| format!(" (process \
    {pid})")).unwrap_or_default())]
    Locked { root: PathBuf, pid: Option<u64> },
    #[error("{root}: {what}")]
    Root { root: PathBuf, what: String },
    /// A resource is used up for the moment, so something can't be read or made.
    #[error("{root}: {what}")]
    Short { root: PathBuf, what: String },
    #[error("can't serve metrics at {listen} (metrics.listen)")]
    Metrics {
        listen: SocketAddrV4,
        #[source]
        source: io::Error,
    },
    #[error("{what}")]
    System {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl StartError {
    /// Whether another start may succeed, with nothing changed in the root or the configuration.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Short { .. } => true,
            Self::Config(error) => error.is_passing(),
            // A keeper that ends while the daemon speaks to it met the shortage itself.
            Self::System { source, .. } => {
                durable::is_passing(source)
                    || matches!(
                        source.kind(),
                        io::ErrorKind::BrokenPipe
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::ConnectionRefused
                            | io::ErrorKind::UnexpectedEof
                    )
            }
            Self::Metrics { source, .. } => durable::is_passing(source),
            Self::Locked { .. } | Self::Root { .. } => false,
        }
    }

    /// An error of the system about something in the root.
    pub fn in_root(root: &Path, place: &str, error: &io::Error) -> Self {
        let (root, what) = (root.to_owned(), format!("{place}{error}"));
        if durable::is_passing(error) {
            Self::Short { root, what }
        } else {
            Self::Root { root, what }
        }
    }
}

pub fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

pub fn no_keeper(source: io::Error) -> StartError {
    let what = match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            "the keeper of this root does not answer; if its process is suspended, continue or \
             kill it"
        }
        _ => "can't start the keeper",
    };
    StartError::System { what, source }
}
