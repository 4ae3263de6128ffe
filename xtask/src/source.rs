//! Rust source with its code, comments and strings told apart: as much of a lexer as the checks
//! need.

/// What a byte of source belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Code,
    Comment,
    /// A string or character literal, its quotes included.
    Literal,
}

/// One source file, each byte with its class.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    text: &'a str,
    classes: Vec<Class>,
}

/// A word, a string literal or one character of punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// A string literal stands without its quotes, and `literal` is true.
    pub(crate) text: &'a str,
    pub(crate) literal: bool,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let mut classes = Vec::with_capacity(bytes.len());
        while classes.len() < bytes.len() {
            let at = classes.len();
            let (length, class) = span(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
            classes.resize((at + length).min(bytes.len()), class);
        }
        Self { text, classes }
    }

    /// Words, literals and punctuation in order, comments left out.
    pub(crate) fn tokens(&self) -> Vec<Token<'a>> {
        let bytes = self.text.as_bytes();
        let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
        while at < bytes.len() {
            let start = at;
            let class = self.classes[at];
            at += 1;
            match class {
                Class::Literal => {
                    let first = bytes[start];
                    while at < bytes.len() && self.classes[at] == class {
                        at += 1;
                    }
                    let text = &self.text[start..at];
                    let text = if first == b'"' { text.trim_matches('"') } else { text };
                    tokens.push(Token { text, literal: true, line });
                }
                Class::Code if is_word(bytes[start]) => {
                    while at < bytes.len() && self.classes[at] == class && is_word(bytes[at]) {
                        at += 1;
                    }
                    tokens.push(Token { text: &self.text[start..at], literal: false, line });
                }
                Class::Code if bytes[start].is_ascii_graphic() => {
                    tokens.push(Token { text: &self.text[start..at], literal: false, line });
                }
                Class::Code | Class::Comment => {}
            }
            line += bytes[start..at].iter().filter(|byte| **byte == b'\n').count();
        }
        tokens
    }

    /// The plain `//` comments (not `///`, not `//!`), each with its line counted from 1 and
    /// without its slashes.
    pub(crate) fn line_comments(&self) -> Vec<(usize, &'a str)> {
        let mut at = 0;
        let mut comments = Vec::new();
        for (index, line) in self.text.split_inclusive('\n').enumerate() {
            let classes = &self.classes[at..at + line.len()];
            at += line.len();
            let Some(start) = classes.iter().position(|class| *class == Class::Comment) else {
                continue;
            };
            if let Some(body) = line[start..].strip_prefix("//")
                && !body.starts_with(['/', '!'])
            {
                comments.push((index + 1, body.trim()));
            }
        }
        comments
    }
}

/// How far the first lexeme of `rest` reaches and what it is; `before` is the byte ahead of it.
fn span(rest: &[u8], before: Option<u8>) -> (usize, Class) {
    let raw = if before.is_some_and(is_word) { None } else { raw_string(rest) };
    match rest {
        [b'/', b'/', ..] => (until(rest, b"\n"), Class::Comment),
        [b'/', b'*', ..] => (block_comment(rest), Class::Comment),
        [b'"', ..] => (quoted(rest, b'"'), Class::Literal),
        [b'\'', b'\\', ..] => (quoted(rest, b'\''), Class::Literal),
        // A lifetime has no quote after its first character.
        [b'\'', ..] => match character(rest) {
            Some(length) => (length, Class::Literal),
            None => (1, Class::Code),
        },
        _ => raw.map_or((1, Class::Code), |length| (length, Class::Literal)),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn until(rest: &[u8], end: &[u8]) -> usize {
    rest.windows(end.len()).position(|window| window == end).unwrap_or(rest.len())
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of `'x'` for one character of any width, or `None` for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    let width = match rest.get(1)? {
        0x00..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// The length of `r"…"`, `r#"…"#` and their byte and C relatives.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = match rest {
        [b'b' | b'c', b'r', ..] => 2,
        [b'r', ..] => 1,
        _ => return None,
    };
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = &rest[open + 1..];
    Some((open + 1 + until(body, &end) + end.len()).min(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        Source::new(text).tokens().iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_left_out_and_strings_stay_whole() {
        assert_eq!(words("a /* b /* c */ d */ e // f\ng"), ["a", "e", "g"]);
        assert_eq!(words(r#"f("a // b", c)"#), ["f", "(", "a // b", ",", "c", ")"]);
        assert_eq!(words(r##"x r#"a " // b"# y"##), ["x", r##"r#"a " // b"#"##, "y"]);
        assert_eq!(words(r#""a\"b" c"#), [r#"a\"b"#, "c"]);
    }

    #[test]
    fn a_quote_is_a_character_or_a_lifetime() {
        assert_eq!(words("'\"' a"), ["'\"'", "a"]);
        assert_eq!(words("'\\'' a"), ["'\\''", "a"]);
        assert_eq!(words("'é' a"), ["'é'", "a"]);
        assert_eq!(words("&'a str // b"), ["&", "'", "a", "str"]);
        assert_eq!(words("r#type for_r"), ["r", "#", "type", "for_r"]);
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let text = "\"a\nb\"\n/* c\nd */\n// e\nf";
        let tokens = Source::new(text).tokens();
        assert_eq!((tokens[1].text, tokens[1].line), ("f", 6));
    }

    #[test]
    fn only_plain_line_comments_are_listed() {
        let text = "/// a\n//! b\n// c\nx(); // d\n\"// e\";\n/* f */";
        assert_eq!(Source::new(text).line_comments(), [(3, "c"), (4, "d")]);
    }
}
