//! The findings as people read them, and as programs do.

use std::ffi::OsStr;

use serde::Serialize;

use super::{Finding, Group, State, kernel, libraries};

/// No line of the table is longer.
const WIDTH: usize = 100;
const STATE_WIDTH: usize = 8;

impl Group {
    fn title(self) -> &'static str {
        match self {
            Self::Processor => "processor",
            Self::Memory => "memory",
            Self::Kernel => "kernel",
            Self::Libraries => "libraries (found where the loader looks, not opened)",
            Self::Devices => "devices",
            Self::Settings => "settings",
        }
    }
}

/// Colour is for a terminal whose user did not ask to be spared (<https://no-color.org>).
pub(super) fn colour_wanted(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

/// One object a line, in the order of the findings.
///
/// # Errors
///
/// None that these types can meet; the serializer's type has them.
pub(super) fn json(findings: &[Finding]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Line<'a> {
        name: &'a str,
        state: &'a str,
        found: Option<&'a str>,
        r#for: &'a str,
        get: &'a str,
    }
    let mut text = String::new();
    for Finding { subject, state, found } in findings {
        let line = Line {
            name: subject.name,
            state: state.word(),
            found: found.as_deref(),
            r#for: subject.used_for,
            get: subject.how_to_get,
        };
        text += &serde_json::to_string(&line)?;
        text.push('\n');
    }
    Ok(text)
}

/// Aligned and grouped; what is missing or limited says what it is for and how to get it.
pub(super) fn table(findings: &[Finding], colour: bool) -> String {
    let name_width =
        findings.iter().map(|finding| finding.subject.name.len()).max().unwrap_or_default();
    let indent = 2 + name_width + 2 + STATE_WIDTH + 2;
    let mut text = String::new();
    let mut open = None;
    for Finding { subject, state, found } in findings {
        if open != Some(subject.group) {
            if open.is_some() {
                text.push('\n');
            }
            text += subject.group.title();
            text.push('\n');
            open = Some(subject.group);
        }
        let mut details: Vec<String> = found.iter().cloned().collect();
        if matches!(state, State::Limited | State::Missing) {
            details.push(format!("for: {}", subject.used_for));
            details.push(format!("get it: {}", subject.how_to_get));
        }
        let word = painted(*state, colour);
        text += &format!("  {:<name_width$}  {word}  ", subject.name);
        let lines: Vec<String> =
            details.iter().flat_map(|detail| wrapped(detail, WIDTH - indent)).collect();
        text += &lines.join(&format!("\n{:indent$}", ""));
        text.push('\n');
    }
    text.push('\n');
    for paragraph in summary(findings) {
        text += &wrapped(&paragraph, WIDTH).join("\n");
        text.push('\n');
    }
    text
}

/// Whether all is there that this version of pontoon stands on.
pub(super) fn ready(findings: &[Finding]) -> bool {
    processes(findings) == State::Ok
}

/// How far memory can be shared between processes.
fn processes(findings: &[Finding]) -> State {
    state_of(kernel::MEMFD.name, findings)
}

fn state_of(name: &str, findings: &[Finding]) -> State {
    let found = findings.iter().find(|finding| finding.subject.name == name);
    found.map_or(State::Missing, |finding| finding.state)
}

fn summary(findings: &[Finding]) -> [String; 2] {
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let lacks = |name: &'static str| (state_of(name, findings) != State::Ok).then_some(name);
    let ready = |lack: Option<&str>| match lack {
        None => "ready".to_owned(),
        Some(name) => format!("not ready, {name} is not to be had"),
    };
    let processes = lacks(kernel::MEMFD.name);
    let (processes, hosts) = (ready(processes), ready(processes.or(lacks(libraries::UCX.name))));
    [
        format!(
            "{} ok, {} limited, {} missing. Not in this version, whatever is found: GPUs.",
            count(State::Ok),
            count(State::Limited),
            count(State::Missing)
        ),
        format!(
            "works now: CPU devices, signals between threads, and kernels that send by themselves: \
             ready; jobs of ranks, with signals, links and sending kernels between processes: {processes}; \
             the same between hosts: {hosts}"
        ),
    ]
}

fn painted(state: State, colour: bool) -> String {
    let word = format!("{:<STATE_WIDTH$}", state.word());
    if !colour {
        return word;
    }
    let code = match state {
        State::Ok => 32,
        State::Limited => 33,
        State::Missing => 31,
    };
    format!("\x1b[{code}m{word}\x1b[0m")
}

/// Breaks at spaces into lines of at most `width` characters. A longer word, such as a path, is
/// cut: a reader can join it again, a table cannot hold it.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        if used > 0 {
            used += 1;
            lines.last_mut().expect("starts with one").push(' ');
        }
        for character in word.chars() {
            if used == width {
                lines.push(String::new());
                used = 0;
            }
            lines.last_mut().expect("starts with one").push(character);
            used += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::Subject;
    use super::*;

    const LOCK: Subject = Subject {
        group: Group::Memory,
        name: "memlock",
        used_for: "registering memory with a network card or a GPU, which pins each page of it",
        how_to_get: "a line in limits.conf, or an option of the container, and then a new login",
    };

    fn some() -> Vec<Finding> {
        vec![
            LOCK.limited("8 MiB"),
            kernel::MEMFD.ok("tried: there"),
            Subject { group: Group::Kernel, name: "x", ..LOCK }.missing(),
            Subject { group: Group::Kernel, name: "y", ..LOCK }.ok("of Linux 6.7"),
        ]
    }

    #[test]
    fn json_is_one_object_a_line() {
        let text = json(&some()).expect("serializes");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            format!(
                "{{\"name\":\"memlock\",\"state\":\"limited\",\"found\":\"8 MiB\",\"for\":\"{}\",\
                 \"get\":\"{}\"}}",
                LOCK.used_for, LOCK.how_to_get
            )
        );
        assert!(lines[2].contains("\"state\":\"missing\",\"found\":null,"), "{}", lines[2]);
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn the_table_is_aligned_grouped_and_narrow() {
        let text = table(&some(), false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "memory");
        assert_eq!(lines[1], "  memlock  limited   8 MiB");
        assert!(lines[2].starts_with("                     for: registering"), "{}", lines[2]);
        assert!(text.contains("\n\nkernel\n  memfd    ok        tried: there\n"), "{text}");
        assert!(text.contains("\n  x        missing   for: registering"), "{text}");
        assert!(text.contains("\n  y        ok        of Linux 6.7\n"), "{text}");
        assert!(text.contains("get it: a line in limits.conf"));
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(lines.iter().all(|line| !line.ends_with(' ')), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn colour_changes_the_words_only() {
        let plain = table(&some(), false);
        let mut coloured = table(&some(), true);
        assert!(coloured.contains("\x1b[33mlimited \x1b[0m"));
        for code in ["\x1b[31m", "\x1b[36m", "\x1b[32m", "\x1b[33m", "\x1b[0m"] {
            coloured = coloured.replace(code, "");
        }
        assert_eq!(coloured, plain);
        assert!(colour_wanted(true, None) && colour_wanted(true, Some(OsStr::new(""))));
        assert!(!colour_wanted(true, Some(OsStr::new("1"))) && !colour_wanted(false, None));
    }

    #[test]
    fn the_last_line_says_what_works() {
        let with = table(&some(), false);
        assert!(with.contains("2 ok, 1 limited, 1 missing."), "{with}");
        let said = |findings: &[Finding]| summary(findings).join(" ");
        let with = said(&some());
        let absent = with.split_once("Not in this version").expect("what is not").1;
        let (absent, works) = absent.split_once("works now: ").expect("what is");
        assert!(absent.contains("GPUs") && !absent.contains("links"), "{absent}");
        assert!(works.contains("kernels that send by themselves: ready"), "{works}");
        assert!(works.contains("between processes: ready"), "{works}");
        assert!(works.ends_with("between hosts: not ready, libucp is not to be had"), "{works}");
        let ucx = [kernel::MEMFD.ok("tried"), libraries::UCX.ok("UCX 1.13")];
        assert!(said(&ucx).ends_with("between hosts: ready"), "{}", said(&ucx));
        assert!(ready(&some()));
        let without = [kernel::MEMFD.missing(), libraries::UCX.ok("UCX 1.13")];
        assert!(said(&without).contains("between processes: not ready, memfd"));
        assert!(said(&without).contains("between hosts: not ready, memfd"));
        assert!(!ready(&without) && !ready(&[]));
    }

    #[test]
    fn lines_break_at_spaces_and_words_only_if_they_must() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a verylongword b", 6), ["a", "verylo", "ngword", "b"]);
        assert_eq!(wrapped("äöü äöü", 3), ["äöü", "äöü"]);
        assert_eq!(wrapped("ab cd", 4), ["ab", "cd"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
