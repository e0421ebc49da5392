//! Configuration: raw TOML in, a checked `Config` out.
