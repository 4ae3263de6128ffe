//! The sync calls, stray orderings and SYNC comments of one file.

use crate::source::{Source, Token};
use std::collections::BTreeSet;

/// How far above its call a comment may stand, in lines.
const REACH: usize = 10;

/// Which end of its pair a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Release,
    Acquire,
    Full,
}

/// One `sync("name", …)` call.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) name: String,
    /// The ends its comments say it is, as far as its ordering can be them.
    pub(super) roles: BTreeSet<Role>,
    /// The ends its ordering can be.
    possible: &'static [Role],
    /// The first lines of the comments it was found in.
    comments: BTreeSet<usize>,
}

/// One `// SYNC(name) role: …` comment.
#[derive(Debug)]
struct Mark<'a> {
    line: usize,
    /// The first line of the run of comment lines it stands in.
    comment: usize,
    name: &'a str,
    role: Role,
    used: bool,
}

/// The sites of one file; what is wrong by rules S1, S2 and S5 goes to `problems`.
pub(super) fn scan(file: &str, text: &str, problems: &mut Vec<String>) -> Vec<Site> {
    let source = Source::new(text);
    let mut tokens = source.tokens();
    if is(&tokens, 0, "#") && is(&tokens, 1, "!") && test_attribute_end(&tokens, 2).is_some() {
        return Vec::new();
    }
    let test_lines = remove_test_modules(&mut tokens);
    let mut marks = Vec::new();
    let (mut first, mut last) = (0, 0);
    for (line, comment) in source.line_comments() {
        if line != last + 1 {
            first = line;
        }
        last = line;
        if !comment.starts_with("SYNC(") || test_lines.iter().any(|it| it.contains(&line)) {
            continue;
        }
        match mark(line, first, comment) {
            Some(mark) => marks.push(mark),
            None => problems.push(format!(
                "{file}:{line}: a SYNC comment reads `// SYNC(name) release: why`, with release, \
                 acquire or full"
            )),
        }
    }
    let uses = remove_uses(file, &mut tokens, problems);
    let mut sites = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        if let Some((name, ordering, length)) = call(&tokens, at) {
            sites.push(site(file, rest[0].line, name, ordering, &mut marks, problems));
            at += length;
            continue;
        }
        if is_ordering(&rest[0]) && is_used_as_ordering(&tokens, at, &uses) {
            problems.push(format!(
                "{file}:{}: {} outside sync(\"name\", …); name the pair it belongs to",
                rest[0].line, rest[0].text
            ));
        }
        at += 1;
    }
    for mark in marks.iter().filter(|mark| !mark.used) {
        match lent(&sites, mark) {
            Some(site) => sites.push(site),
            None => problems.push(format!(
                "{file}:{}: SYNC({}) describes no sync call in the {REACH} lines below it that \
                 could be its {:?} end",
                mark.line, mark.name, mark.role
            )),
        }
    }
    sites
}

/// The call that is the end `mark` tells of under another name: one it shares a comment with.
fn lent(sites: &[Site], mark: &Mark<'_>) -> Option<Site> {
    let call = sites.iter().find(|site| {
        site.comments.contains(&mark.comment)
            && site.possible.contains(&mark.role)
            && is_near(mark, site.line)
    })?;
    let roles = BTreeSet::from([mark.role]);
    let (file, comments) = (call.file.clone(), BTreeSet::new());
    Some(Site { file, name: mark.name.into(), roles, comments, ..*call })
}

fn is_near(mark: &Mark<'_>, line: usize) -> bool {
    (line.saturating_sub(REACH)..=line).contains(&mark.line)
}

fn site(
    file: &str,
    line: usize,
    name: &str,
    ordering: &str,
    marks: &mut [Mark<'_>],
    problems: &mut Vec<String>,
) -> Site {
    let possible: &'static [Role] = match ordering {
        "Acquire" => &[Role::Acquire],
        "Release" => &[Role::Release],
        "AcqRel" => &[Role::Release, Role::Acquire],
        _ => &[Role::Full, Role::Release, Role::Acquire],
    };
    let (mut roles, mut comments) = (BTreeSet::new(), BTreeSet::new());
    let own = marks.iter_mut().filter(|mark| mark.name == name && is_near(mark, line));
    for mark in own.filter(|mark| possible.contains(&mark.role)) {
        mark.used = true;
        roles.insert(mark.role);
        comments.insert(mark.comment);
    }
    if roles.is_empty() {
        problems.push(format!(
            "{file}:{line}: sync(\"{name}\", {ordering}) has no `// SYNC({name}) …` comment in the \
             {REACH} lines above it that names an end {ordering} can be"
        ));
    }
    Site { file: file.into(), line, name: name.into(), roles, possible, comments }
}

fn mark(line: usize, first: usize, comment: &str) -> Option<Mark<'_>> {
    let (name, rest) = comment.strip_prefix("SYNC(")?.split_once(") ")?;
    let (role, why) = rest.split_once(':')?;
    let role = match role {
        "release" => Role::Release,
        "acquire" => Role::Acquire,
        "full" => Role::Full,
        _ => return None,
    };
    (!name.is_empty() && !why.trim().is_empty()).then_some(Mark {
        line,
        comment: first,
        name,
        role,
        used: false,
    })
}

fn is_ordering(token: &Token<'_>) -> bool {
    !token.literal && matches!(token.text, "Acquire" | "Release" | "AcqRel" | "SeqCst")
}

fn is(tokens: &[Token<'_>], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|token| !token.literal && token.text == text)
}

fn is_path_step(tokens: &[Token<'_>], at: usize) -> bool {
    is(tokens, at, ":") && is(tokens, at + 1, ":")
}

/// The name, the ordering and the number of tokens of a `sync("name", Ordering)` at `at`.
fn call<'a>(tokens: &[Token<'a>], at: usize) -> Option<(&'a str, &'a str, usize)> {
    let name = tokens.get(at + 2).filter(|name| name.literal)?;
    if !is(tokens, at, "sync") || !is(tokens, at + 1, "(") || !is(tokens, at + 3, ",") {
        return None;
    }
    let mut last = at + 4;
    while is_path_step(tokens, last + 1) {
        last += 3;
    }
    let ordering = tokens.get(last).filter(|token| is_ordering(token))?;
    let close = last + 1 + usize::from(is(tokens, last + 1, ","));
    is(tokens, close, ")").then_some((name.text, ordering.text, close + 1 - at))
}

/// What a file's `use` lines bring in: the orderings by name, and whether all of them.
#[derive(Debug, Default)]
struct Uses<'a> {
    names: BTreeSet<&'a str>,
    all: bool,
}

/// Whether the ordering word at `at` stands for an atomic ordering.
fn is_used_as_ordering(tokens: &[Token<'_>], at: usize, uses: &Uses<'_>) -> bool {
    if at >= 2 && is_path_step(tokens, at - 2) {
        return at >= 3 && is(tokens, at - 3, "Ordering");
    }
    if uses.all || uses.names.contains(tokens[at].text) {
        return true;
    }
    let argument_ends = is(tokens, at + 1, ",") || is(tokens, at + 1, ")");
    let argument_starts = at > 0 && (is(tokens, at - 1, "(") || is(tokens, at - 1, ","));
    argument_starts && argument_ends && innermost_bracket(&tokens[..at]) == Some("(")
}

/// The bracket still open at the end of `tokens`.
fn innermost_bracket<'a>(tokens: &[Token<'a>]) -> Option<&'a str> {
    let mut closed = 0;
    for token in tokens.iter().rev().filter(|token| !token.literal) {
        match token.text {
            ")" | "]" | "}" => closed += 1,
            "(" | "[" | "{" if closed == 0 => return Some(token.text),
            "(" | "[" | "{" => closed -= 1,
            _ => {}
        }
    }
    None
}

/// Takes the `use` lines out of `tokens` and tells what they import.
fn remove_uses<'a>(
    file: &str,
    tokens: &mut Vec<Token<'a>>,
    problems: &mut Vec<String>,
) -> Uses<'a> {
    let mut uses = Uses::default();
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        // `use<'a>` in a bound captures lifetimes and imports nothing.
        if !is(tokens, at, "use") || is(tokens, at + 1, "<") {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        let length = tokens[at..].iter().take_while(|token| token.text != ";").count() + 1;
        let line = &tokens[at..tokens.len().min(at + length)];
        if line.iter().any(|token| matches!(token.text, "Ordering" | "shim")) {
            uses.names.extend(line.iter().filter(|it| is_ordering(it)).map(|it| it.text));
            uses.all |= line.iter().any(|token| token.text == "*");
        }
        let renamed = |at: usize| {
            is(line, at + 1, "as")
                && !is(line, at + 2, "_")
                && (is(line, at, "Ordering") || is_ordering(&line[at]))
        };
        if (0..line.len()).any(renamed) && !line.iter().any(|token| token.text == "cmp") {
            problems.push(format!(
                "{file}:{}: an atomic ordering imported under another name is lost to this check",
                line[0].line
            ));
        }
        at += length;
    }
    *tokens = kept;
    uses
}

/// Takes inline `#[cfg(test)] mod … { … }` out of `tokens` and tells which lines they cover.
fn remove_test_modules(tokens: &mut Vec<Token<'_>>) -> Vec<std::ops::RangeInclusive<usize>> {
    let mut lines = Vec::new();
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        match test_module(tokens, at) {
            Some(end) => {
                lines.push(tokens[at].line..=tokens[end - 1].line);
                at = end;
            }
            None => {
                kept.push(tokens[at]);
                at += 1;
            }
        }
    }
    *tokens = kept;
    lines
}

/// The end of an inline test module whose `#[cfg(test)]` is at `at`.
fn test_module(tokens: &[Token<'_>], at: usize) -> Option<usize> {
    is(tokens, at, "#").then_some(())?;
    let mut next = test_attribute_end(tokens, at + 1)?;
    while is(tokens, next, "#") && is(tokens, next + 1, "[") {
        next = closing(tokens, next + 1)? + 1;
    }
    (is(tokens, next, "mod") && is(tokens, next + 2, "{")).then_some(())?;
    Some(closing(tokens, next + 2)? + 1)
}

/// The end of a `#[cfg(test)]`, or `cfg(all(test, …))`, whose `[` is at `open`.
fn test_attribute_end(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    (is(tokens, open, "[") && is(tokens, open + 1, "cfg")).then_some(())?;
    let end = closing(tokens, open)?;
    let words = &tokens[open..end];
    let says = |text| words.iter().any(|token| token.text == text);
    let negated = words.windows(3).any(|it| it[0].text == "not" && it[2].text == "test");
    (says("test") && !says("any") && !negated).then_some(end + 1)
}

/// The index of the bracket that closes the one at `open`.
fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open).filter(|(_, token)| !token.literal) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        scan("f.rs", text, &mut problems);
        problems
    }

    fn refused(text: &str, complaint: &str) -> bool {
        problems(text).iter().any(|problem| problem.contains(complaint))
    }

    fn roles(text: &str) -> Vec<Role> {
        let sites = scan("f.rs", text, &mut Vec::new());
        sites.iter().flat_map(|site| site.roles.iter().copied()).collect()
    }

    #[test]
    fn a_stray_ordering_is_refused() {
        for stray in [
            "\nw.load(Acquire)",
            "\nw.store(1, Release)",
            "\nw.swap(1, atomic::Ordering::AcqRel)",
            "\nlet order = Ordering::SeqCst;",
            "\nw.load(sync(NAME, Acquire))",
            "use crate::shim::{Acquire, sync};\nlet order = if x { Acquire } else { Relaxed };",
            "use crate::shim::*;\nlet order = Acquire;",
            "use core::sync::atomic::Ordering::*;\nconst O: Ordering = Acquire;",
            "\nw.compare_exchange(0, 1, sync(\"a\", AcqRel), Acquire)",
        ] {
            assert!(refused(stray, "f.rs:2: "), "{stray}");
            assert!(refused(stray, "outside sync("), "{stray}");
        }
        assert!(refused("use core::sync::atomic::Ordering as O;", "another name"));
        assert!(refused("use shim::Ordering::{Acquire as A};", "another name"));
    }

    #[test]
    fn other_uses_of_the_words_pass() {
        for fine in [
            "// Acquire\n/* w.load(Acquire) */ /// Release\n",
            "let s = \"w.load(Acquire)\";",
            "use core::sync::atomic::Ordering::{Acquire, Release};",
            "enum Mode { Acquire, Release }",
            "build(Mode::Release, Profile::Release)",
            "fn f() -> impl Sized + use<'a> {} struct Release(u8);",
            "use core::cmp::Ordering as Order;",
            "#[cfg(test)]\n#[expect(x)]\nmod tests { fn f() { w.load(Acquire) } }",
            "#[cfg(all(test, not(pontoon_loom)))]\nmod tests {\n// SYNC(a) b\nw.load(Acquire) }",
            "#![cfg(test)] fn f() { w.load(Acquire) }",
        ] {
            assert_eq!(problems(fine), [""; 0], "{fine}");
        }
    }

    #[test]
    fn code_not_only_for_tests_is_read() {
        for read in [
            "#[cfg(not(test))]\nmod m { fn f() { w.load(Acquire) } }",
            "#[cfg(any(test, x))]\nmod m { fn f() { w.load(Acquire) } }",
            "#[cfg(test)]\nmod m { }\nfn f() { w.load(Acquire) }",
        ] {
            assert!(refused(read, "outside sync("), "{read}");
        }
    }

    #[test]
    fn a_call_without_its_comment_is_refused() {
        let call = "w.load(sync(\"a\", Acquire));";
        let comment = "// SYNC(a) acquire: why.\n";
        assert_eq!(problems(&format!("{comment}{call}")), [""; 0]);
        assert_eq!(problems(&format!("{comment}{}{call}", "\n".repeat(9))), [""; 0]);
        assert!(refused(call, "f.rs:1: sync(\"a\", Acquire) has no"));
        assert!(refused(&format!("{comment}{}{call}", "\n".repeat(10)), "has no"));
        assert!(refused(&format!("// SYNC(b) acquire: why.\n{call}"), "has no"));
        assert!(refused(&format!("// SYNC(a) release: why.\n{call}"), "has no"));
        assert!(refused(&format!("// SYNC(a) full: why.\n{call}"), "has no"));
        assert!(refused(&format!("/// SYNC(a) acquire: why.\n{call}"), "has no"));
    }

    #[test]
    fn a_comment_without_its_call_is_refused() {
        assert!(refused("// SYNC(a) acquire: why.\nw.load(Relaxed);", "f.rs:1: SYNC(a) describes"));
        assert!(refused("// SYNC(a) aquire: why.", "a SYNC comment reads"));
        assert!(refused("// SYNC(a) acquire", "a SYNC comment reads"));
        assert!(refused("// SYNC(a) acquire:", "a SYNC comment reads"));
    }

    #[test]
    fn a_call_is_the_ends_its_comments_say() {
        let both = "// SYNC(a) release: x.\n// SYNC(a) acquire: y.\n";
        let swap = "w.swap(1, shim::sync(\n\"a\",\nOrdering::AcqRel,\n));";
        assert_eq!(roles(&format!("{both}{swap}")), [Role::Release, Role::Acquire]);
        assert_eq!(roles(&format!("// SYNC(a) acquire: y.\n{swap}")), [Role::Acquire]);
        let fence = "// SYNC(d) full: x.\nfence(sync(\"d\", SeqCst));";
        assert_eq!(roles(fence), [Role::Full]);
    }

    #[test]
    fn one_call_may_end_a_further_pair_that_its_comment_names() {
        let shared = "// SYNC(a) acquire: x,\n// continued.\n// SYNC(b) acquire: y.\n";
        let fence = "fence(sync(\"a\", Acquire));";
        let mut found = Vec::new();
        let sites = scan("f.rs", &format!("{shared}{fence}"), &mut found);
        assert_eq!(found, [""; 0]);
        let ends: Vec<_> = sites.iter().map(|it| (&*it.name, it.line)).collect();
        assert_eq!(ends, [("a", 4), ("b", 4)]);
        assert_eq!(roles(&format!("{shared}{fence}")), [Role::Acquire, Role::Acquire]);
        let apart = shared.replace("// continued.\n", "\n");
        assert!(refused(&format!("{apart}{fence}"), "f.rs:3: SYNC(b) describes no"));
        let other_end = shared.replace("(b) acquire", "(b) release");
        assert!(refused(&format!("{other_end}{fence}"), "f.rs:3: SYNC(b) describes no"));
    }
}
