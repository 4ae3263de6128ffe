//! What goes to standard error, and who says it.
//!
//! Ranks share a terminal: once a process knows which rank it is, each of its lines begins with
//! that. A line goes out in one write, so that those of others come between lines only.

use std::{
    fmt::{self, Write as _},
    io::Write as _,
    sync::OnceLock,
};

use pontoon::Rank;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

/// Which rank this process is, once it knows.
static RANK: OnceLock<Rank> = OnceLock::new();

/// From now on this process speaks as `rank`, and warnings of pontoon's own parts are told too. A
/// process is one rank: the first call decides.
pub(crate) fn speak_as(rank: Rank) {
    if RANK.set(rank).is_ok() {
        // It fails only if there is one already, which then tells them.
        let _ = tracing::subscriber::set_global_default(Warnings);
    }
}

/// Says a line of text on standard error; see [`on_one_line`].
pub(crate) fn say(text: &str) {
    let line = line(RANK.get().copied(), text);
    // Nobody is left to be told that nobody listens.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn line(rank: Option<Rank>, text: &str) -> String {
    let mut line = String::with_capacity(text.len() + 16);
    if let Some(rank) = rank {
        // Writing to a string does not fail.
        let _ = write!(line, "rank {rank}: ");
    }
    line.push_str(&on_one_line(text));
    line.push('\n');
    line
}

/// Names of files may hold anything; a message is one line and moves no cursor.
pub(crate) fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// So many characters of what a user gave are told.
const SHOWN: usize = 64;

/// The beginning of `text`, or all of it where that is short.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Says what the parts of pontoon warn of.
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("pontoon::")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let kind = if *event.metadata().level() == Level::ERROR { "error" } else { "warning" };
        let mut words = Words::default();
        event.record(&mut words);
        say(&format!("{kind}: {}{}", words.message, words.fields));
    }

    // Spans are of no interest: all have one number.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The words of an event: its message, then ` name=value` for each other field.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted::counted;

    #[test]
    fn a_line_is_one_line_and_says_who_speaks() {
        assert_eq!(line(None, "error: no"), "error: no\n");
        assert_eq!(line(Some(Rank(7)), "slow: a\nb\u{1b}[2J"), "rank 7: slow: a\\nb\\u{1b}[2J\n");
    }

    #[test]
    fn what_is_long_is_cut_between_characters() {
        let fits = "é".repeat(SHOWN);
        assert_eq!(shortened(&fits), fits);
        assert_eq!(shortened(&format!("{fits}é")), format!("{fits}…"));
    }

    #[test]
    fn one_of_a_thing_is_one() {
        assert_eq!(
            [0_u32, 1, 2].map(|ranks| counted(ranks, "rank")),
            ["0 ranks", "1 rank", "2 ranks"]
        );
    }

    #[test]
    fn warnings_of_pontoon_are_told_and_nothing_else() {
        tracing::subscriber::with_default(Warnings, || {
            assert!(tracing::enabled!(target: "pontoon::job", Level::WARN));
            assert!(tracing::enabled!(target: "pontoon::job", Level::ERROR));
            assert!(!tracing::enabled!(target: "pontoon::job", Level::INFO));
            assert!(!tracing::enabled!(target: "another", Level::WARN));
        });
    }
}
