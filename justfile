# What a change must pass: exactly what CI runs.
check:
    .ci/run

test *args:
    cargo test {{args}}

fmt:
    cargo fmt

# Writes schemas/ anew, after a change of a format.
schemas:
    UPDATE_SCHEMAS=1 cargo test --test published shipped

# Every fault in full, for hours; says what was tried and what broke.
torture *args:
    TORTURE=full cargo test --release --test torture -- --nocapture --test-threads=1 {{args}}
    cat target/torture/table.md
    just mutants
    just torture-systemd

# Shows that the harnesses can fail: with each of the planted defects, the one that should sees it.
mutants *args:
    cargo test --features mutants --target-dir target/mutants --test torture mutants:: {{args}}

# The daemon under a real systemd in a container; needs root, systemd-nspawn and debootstrap.
torture-systemd:
    cargo build
    tests/systemd/run.sh target/debug/handoffd

# One parser under coverage, such as `just fuzz request_yaml`; needs cargo-fuzz.
fuzz parser *args:
    FUZZ_PARSER={{parser}} cargo fuzz run -s none parsers {{args}}

# Measures everything, or the parts that are named, and writes docs/performance.md.
bench *args:
    cargo bench --bench lifecycle -- --write docs {{args}}

# What each part costs in instructions; fails where one costs over 5 % more. Needs valgrind.
bench-check:
    cargo bench --bench parts -- --check

# Accepts what the parts cost now.
bench-baseline:
    cargo bench --bench parts -- --baseline

# The daemon on this repository's own root.
run *args:
    cargo run -- run {{args}}

# Licences, advisories and sources of the dependencies; builds cargo-deny at the first time.
deny:
    .ci/deny
