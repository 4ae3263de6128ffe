# For people; every recipe but build, bench and peers is a stage of .ci/run, where the commands are.

# List the recipes.
default:
    @just --list

# Build every target.
build:
    .ci/run build

# Unit, integration, model and doc tests.
test:
    .ci/run test

# Every interleaving of the signal protocols, under loom.
loom:
    .ci/run loom

# Take each named ordering away in turn; loom must notice.
weaken:
    .ci/run weaken

# rustfmt, then clippy in the plain and in the loom build.
lint:
    .ci/run fmt lint

# Build the documentation; a broken link fails.
docs:
    .ci/run docs

# Licences, sources and bans of the dependencies.
deny:
    .ci/run deny

# Shell scripts parse; the tests of what measures rivals.
scripts:
    .ci/run scripts

# What the tests of links need (Debian packages, as root).
install:
    .ci/run install

# Layers, SYNC pairs and unsafe regimes.
check:
    .ci/run check

# Measure; arguments go to `pontoon bench`.
bench *args:
    cargo run --release --locked -p pontoon-cli -- bench {{args}}

# Measure rivals beside pontoon: `just peers install`, `just peers run`.
peers *args:
    scripts/peers/peers.py {{args}}

# Feed changed bytes to all that others hand us, each target for so long.
fuzz seconds="20":
    PONTOON_FUZZ_SECONDS={{seconds}} .ci/run fuzz

# 100,000 random programs against the oracle, and ten minutes of fuzzing.
nightly:
    .ci/run nightly

# All of it, as CI does.
ci:
    .ci/run
