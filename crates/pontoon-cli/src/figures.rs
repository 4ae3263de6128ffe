//! Measured figures: collected, reduced to median, p99 and minimum, printed for people or as JSON.
//!
//! A table is written row by row, so that a long run shows each figure when it is known. Its units
//! are scaled for reading; JSON keeps the unit that was measured. Both go to any `Write`, and a
//! reader that goes away (`| head`) is an error of kind `BrokenPipe`, never a panic: see
//! [`closed_pipe_is_no_fault`].

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

use crate::counted::counted;

/// What the numbers of a figure count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Ns,
    Ms,
    /// 10^6 bytes a second.
    MbPerS,
    /// Of one core, or of what the name says.
    Percent,
    /// Tasks of a ring.
    Tasks,
    TasksPerS,
    MessagesPerS,
    /// Accesses to one page.
    Touches,
    /// Of memory, with a link.
    Registrations,
    /// One measurement over another.
    Ratio,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Ms => "ms",
            Self::MbPerS => "MB/s",
            Self::Percent => "%",
            Self::Tasks => "tasks",
            Self::TasksPerS => "tasks/s",
            Self::MessagesPerS => "messages/s",
            Self::Touches => "touches",
            Self::Registrations => "registrations",
            Self::Ratio => "x",
        }
    }

    /// The factor and the unit with which a value of about `median` reads well.
    fn scaled(self, median: f64) -> (f64, &'static str) {
        let to_ns = match self {
            Self::Ns => 1.0,
            Self::Ms => 1e6,
            Self::MbPerS | Self::Percent | Self::Tasks | Self::Ratio => return (1.0, self.name()),
            Self::Touches | Self::Registrations => return (1.0, self.name()),
            Self::TasksPerS => return per_s(median, ["tasks/s", "ktasks/s", "Mtasks/s"]),
            Self::MessagesPerS => return per_s(median, ["msg/s", "kmsg/s", "Mmsg/s"]),
        };
        match median.abs() * to_ns {
            ns if ns < 1e3 => (to_ns, "ns"),
            ns if ns < 1e6 => (to_ns / 1e3, "us"),
            ns if ns < 1e9 => (to_ns / 1e6, "ms"),
            _ => (to_ns / 1e9, "s"),
        }
    }
}

/// The factor and the unit, of one, thousands and millions, with which a rate reads well.
fn per_s(median: f64, [ones, thousands, millions]: [&'static str; 3]) -> (f64, &'static str) {
    match median.abs() {
        rate if rate < 1e3 => (1.0, ones),
        rate if rate < 1e6 => (1e-3, thousands),
        _ => (1e-6, millions),
    }
}

impl Serialize for Unit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One measured quantity, reduced. `p99` is the value that 99 % of the rounds do not exceed, for a
/// rate (where more is better) as well as for a time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) min: f64,
    pub(crate) rounds: usize,
}

/// A figure that could not be measured here, and what was missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Skipped {
    pub(crate) name: String,
    #[serde(rename = "skipped")]
    pub(crate) why: String,
}

/// A value that is no number, handed back: it would poison every figure made from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotFinite(pub(crate) f64);

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "measured {}, which is no finite number", self.0)
    }
}

impl std::error::Error for NotFinite {}

/// The values of one quantity, in the order of their rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Invariant F1: every value is finite.
    values: Vec<f64>,
}

impl Samples {
    pub(crate) fn with_capacity(rounds: usize) -> Self {
        Self { values: Vec::with_capacity(rounds) }
    }

    /// Adds the value of one round.
    ///
    /// # Errors
    ///
    /// A value that is not finite is refused and comes back.
    pub(crate) fn push(&mut self, value: f64) -> Result<(), NotFinite> {
        if !value.is_finite() {
            return Err(NotFinite(value));
        }
        self.values.push(value);
        Ok(())
    }

    pub(crate) fn rounds(&self) -> usize {
        self.values.len()
    }

    /// Reduces to median (the mean of the middle two of an even count), p99 (nearest rank) and
    /// minimum; `None` of no rounds.
    pub(crate) fn figure(&self, name: impl Into<String>, unit: Unit) -> Option<Figure> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let rounds = sorted.len();
        let min = *sorted.first()?;
        let high = sorted[rounds / 2];
        // Halves are added, not the sum halved: the sum of two large values may overflow.
        let median = if rounds % 2 == 1 { high } else { sorted[rounds / 2 - 1] / 2.0 + high / 2.0 };
        let p99 = sorted[(rounds * 99).div_ceil(100) - 1];
        Some(Figure { name: name.into(), unit, median, p99, min, rounds })
    }
}

/// Why two series give no ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RatioError {
    /// Different numbers of rounds: the pairs are not known.
    Rounds { above: usize, below: usize },
    /// No rounds at all.
    Empty,
    /// The ratio of this round is no finite number.
    Round(usize),
}

impl fmt::Display for RatioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rounds { above, below } => {
                write!(f, "{} cannot be paired with {below}", counted(*above as u64, "round"))
            }
            Self::Empty => f.write_str("no rounds were measured"),
            Self::Round(round) => write!(f, "round {round} was divided by zero"),
        }
    }
}

impl std::error::Error for RatioError {}

/// The figure of `above / below`, formed round by round and then reduced.
///
/// A machine that is slow for a while slows both sides of a round, so the median of the ratios
/// holds where the ratio of the medians moves.
///
/// # Errors
///
/// The series differ in length, are empty, or a round divides by zero.
pub(crate) fn ratio(
    name: impl Into<String>,
    above: &Samples,
    below: &Samples,
) -> Result<Figure, RatioError> {
    if above.rounds() != below.rounds() {
        return Err(RatioError::Rounds { above: above.rounds(), below: below.rounds() });
    }
    let mut ratios = Samples::with_capacity(above.rounds());
    for (round, (a, b)) in above.values.iter().zip(&below.values).enumerate() {
        ratios.push(a / b).map_err(|NotFinite(_)| RatioError::Round(round))?;
    }
    ratios.figure(name, Unit::Ratio).ok_or(RatioError::Empty)
}

/// How figures are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One object a line.
    Json,
    /// Aligned columns, a blank line between groups (the name up to its first `/`).
    Table,
}

/// Writes figures, each when it is known.
#[derive(Debug)]
pub(crate) struct Printer<W> {
    out: W,
    format: Format,
    group: Option<String>,
}

/// Wide enough for names in use; a longer one moves its own row only.
const NAME_WIDTH: usize = 44;

impl<W: Write> Printer<W> {
    pub(crate) fn new(out: W, format: Format) -> Self {
        Self { out, format, group: None }
    }

    /// Writes one figure.
    ///
    /// # Errors
    ///
    /// Those of the writer; `BrokenPipe` when the reader has gone.
    pub(crate) fn figure(&mut self, figure: &Figure) -> io::Result<()> {
        match self.format {
            Format::Json => self.json(figure),
            Format::Table => {
                self.open_group(&figure.name)?;
                let (factor, unit) = figure.unit.scaled(figure.median);
                let decimals = decimals(figure.median * factor);
                let [median, p99, min] = [figure.median, figure.p99, figure.min]
                    .map(|value| format!("{:.decimals$}", value * factor));
                self.row([&figure.name, &median, &p99, &min, unit, &figure.rounds.to_string()])
            }
        }
    }

    /// Writes that a figure was not measured, and why.
    ///
    /// # Errors
    ///
    /// Those of the writer; `BrokenPipe` when the reader has gone.
    pub(crate) fn skipped(&mut self, skipped: &Skipped) -> io::Result<()> {
        match self.format {
            Format::Json => self.json(skipped),
            Format::Table => {
                self.open_group(&skipped.name)?;
                writeln!(self.out, "{:<NAME_WIDTH$}  skipped: {}", skipped.name, skipped.why)?;
                self.out.flush()
            }
        }
    }

    fn open_group(&mut self, name: &str) -> io::Result<()> {
        let group = name.split('/').next().unwrap_or(name);
        match &self.group {
            Some(open) if open == group => return Ok(()),
            Some(_) => writeln!(self.out)?,
            None => self.row(["name", "median", "p99", "min", "unit", "rounds"])?,
        }
        self.group = Some(group.to_owned());
        Ok(())
    }

    fn row(&mut self, [name, median, p99, min, unit, rounds]: [&str; 6]) -> io::Result<()> {
        writeln!(
            self.out,
            "{name:<NAME_WIDTH$}  {median:>9}  {p99:>9}  {min:>9}  {unit:<9}  {rounds:>7}"
        )?;
        self.out.flush()
    }

    fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = Vec::new();
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut line, Spaced))?;
        line.push(b'\n');
        // One write a line, so that a reader that follows never sees half of one.
        self.out.write_all(&line)?;
        self.out.flush()
    }
}

/// Digits after the point that leave about four that count.
fn decimals(median: f64) -> usize {
    match median.abs() {
        m if m >= 1000.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        _ => 3,
    }
}

/// One line of JSON with a space after `:` and `,`, which people can read too.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

/// Takes a reader that has gone as the end of the work, and keeps every other error.
///
/// # Errors
///
/// Every error but `BrokenPipe`.
pub(crate) fn closed_pipe_is_no_fault(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::default();
        for &value in values {
            samples.push(value).expect("finite");
        }
        samples
    }

    fn printed(format: Format, write: impl FnOnce(&mut Printer<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        write(&mut Printer::new(&mut out, format));
        String::from_utf8(out).expect("utf-8")
    }

    #[test]
    fn reduces_to_median_p99_and_minimum_in_any_order() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let figure = samples(&hundred).figure("a", Unit::Ns).expect("rounds");
        assert_eq!((figure.median, figure.p99, figure.min), (50.5, 99.0, 1.0));
        assert_eq!(figure.rounds, 100);

        let three = samples(&[9.0, -1.0, 4.0]).figure("a", Unit::Ns).expect("rounds");
        assert_eq!((three.median, three.p99, three.min), (4.0, 9.0, -1.0));
        let one = samples(&[7.0]).figure("a", Unit::Ns).expect("a round");
        assert_eq!((one.median, one.p99, one.min), (7.0, 7.0, 7.0));
        let huge = samples(&[f64::MAX, f64::MAX]).figure("a", Unit::Ns).expect("rounds");
        assert_eq!(huge.median, f64::MAX);
        assert_eq!(Samples::default().figure("a", Unit::Ns), None);
    }

    #[test]
    fn refuses_what_is_not_finite_and_hands_it_back() {
        let mut samples = samples(&[1.0]);
        assert!(samples.push(f64::NAN).expect_err("refused").0.is_nan());
        assert_eq!(samples.push(f64::INFINITY).expect_err("refused").0, f64::INFINITY);
        assert_eq!(samples.rounds(), 1);
    }

    #[test]
    fn a_ratio_is_formed_per_round() {
        let above = samples(&[5.0, 20.0, 300.0]);
        let below = samples(&[10.0, 10.0, 100.0]);
        let figure = ratio("r", &above, &below).expect("pairs");
        assert_eq!((figure.median, figure.p99, figure.min), (2.0, 3.0, 0.5));

        // A stall in the middle round, another in the last: the ratio of the medians is 100.
        let above = samples(&[20.0, 1000.0, 1000.0]);
        let below = samples(&[10.0, 500.0, 10.0]);
        assert_eq!(ratio("r", &above, &below).expect("pairs").median, 2.0);
    }

    #[test]
    fn a_ratio_says_why_there_is_none() {
        let two = samples(&[1.0, 2.0]);
        assert_eq!(
            ratio("r", &two, &samples(&[1.0])),
            Err(RatioError::Rounds { above: 2, below: 1 })
        );
        assert_eq!(ratio("r", &two, &samples(&[1.0, 0.0])), Err(RatioError::Round(1)));
        assert_eq!(ratio("r", &Samples::default(), &Samples::default()), Err(RatioError::Empty));
    }

    #[test]
    fn json_is_one_line_in_the_measured_unit() {
        let text = printed(Format::Json, |printer| {
            let times = samples(&[1500.0, 2500.0]);
            let figure = times.figure("signal/process/roundtrip", Unit::Ns).expect("rounds");
            printer.figure(&figure).expect("written");
            let figure = ratio("signal/vs \"futex\"", &times, &times).expect("pairs");
            printer.figure(&figure).expect("written");
            let why = "no second CPU".to_owned();
            printer.skipped(&Skipped { name: "b/c".to_owned(), why }).expect("written");
        });
        assert_eq!(
            text,
            "{\"name\": \"signal/process/roundtrip\", \"unit\": \"ns\", \"median\": 2000.0, \
             \"p99\": 2500.0, \"min\": 1500.0, \"rounds\": 2}\n\
             {\"name\": \"signal/vs \\\"futex\\\"\", \"unit\": \"x\", \"median\": 1.0, \
             \"p99\": 1.0, \"min\": 1.0, \"rounds\": 2}\n\
             {\"name\": \"b/c\", \"skipped\": \"no second CPU\"}\n"
        );
    }

    #[test]
    fn a_table_scales_aligns_and_groups() {
        let text = printed(Format::Table, |printer| {
            for (name, unit, value) in [
                ("signal/wait", Unit::Ns, 112.25),
                ("signal/wake", Unit::Ns, 22_500_000.0),
                ("queue/submit", Unit::Ms, 3_250.0),
                ("queue/vs", Unit::Ratio, 1.25),
                ("queue/lost", Unit::Tasks, 0.0),
                ("queue/rate", Unit::TasksPerS, 24_500_000.0),
                ("queue/sent", Unit::MessagesPerS, 12_345.0),
                ("queue/few", Unit::MessagesPerS, 12.0),
            ] {
                let figure = samples(&[value]).figure(name, unit).expect("a round");
                printer.figure(&figure).expect("written");
            }
        });
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["name", "median", "p99", "min", "unit", "rounds"]);
        assert_eq!(rows[1], ["signal/wait", "112.2", "112.2", "112.2", "ns", "1"]);
        assert_eq!(rows[2], ["signal/wake", "22.50", "22.50", "22.50", "ms", "1"]);
        assert!(rows[3].is_empty(), "a blank line between groups");
        assert_eq!(rows[4], ["queue/submit", "3.250", "3.250", "3.250", "s", "1"]);
        assert_eq!(rows[5], ["queue/vs", "1.250", "1.250", "1.250", "x", "1"]);
        assert_eq!(rows[6], ["queue/lost", "0.000", "0.000", "0.000", "tasks", "1"]);
        assert_eq!(rows[7], ["queue/rate", "24.50", "24.50", "24.50", "Mtasks/s", "1"]);
        assert_eq!(rows[8], ["queue/sent", "12.35", "12.35", "12.35", "kmsg/s", "1"]);
        assert_eq!(rows[9], ["queue/few", "12.00", "12.00", "12.00", "msg/s", "1"]);
        assert_eq!(rows.len(), 10);
        let ends: Vec<usize> = text.lines().map(str::len).filter(|&len| len > 0).collect();
        assert!(ends.iter().all(|&end| end == ends[0]), "columns end together: {ends:?}");
    }

    #[test]
    fn a_reader_that_has_gone_is_an_error_and_no_panic() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let figure = samples(&[1.0]).figure("a", Unit::Ms).expect("a round");
        for format in [Format::Json, Format::Table] {
            let error = Printer::new(&writer, format).figure(&figure).expect_err("nobody reads");
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            closed_pipe_is_no_fault(Err(error)).expect("the end of the work");
        }
        let full = io::Error::from(io::ErrorKind::StorageFull);
        closed_pipe_is_no_fault(Err(full)).expect_err("still a fault");
    }
}
