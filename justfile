# What a change must pass.
check:
    cargo fmt --check
    cargo clippy --all-targets -- -D warnings
    cargo test

test *args:
    cargo test {{args}}

fmt:
    cargo fmt

bench *args:
    cargo bench {{args}}

# The daemon on this repository's own root.
run *args:
    cargo run -- run {{args}}

# Licences, advisories and sources of what we depend on; needs cargo-deny.
deny:
    cargo deny check
