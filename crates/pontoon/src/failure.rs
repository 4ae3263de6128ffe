//! Why a program ends.

use std::{error::Error, fmt};

/// Why a program ends, for its `main` to return: whatever it failed by, told in that error's own words. Any
/// error becomes one by `?`.
///
/// What `main` returns is printed by its [`Debug`](fmt::Debug), which shows an error's fields; of this it is
/// the sentence that says who, how far and what to do.
///
/// ```
/// fn main() -> Result<(), pontoon::Failure> {
///     let runtime = pontoon::Runtime::cpu(2)?; // `Error: a runtime has at most …` for too many
///     assert_eq!(runtime.devices().len(), 2);
///     Ok(())
/// }
/// ```
pub struct Failure(Box<dyn Error + Send + Sync>);

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_printed_in_the_words_of_its_error() {
        let fails = || -> Result<(), Failure> { Ok(crate::Runtime::cpu(1000).map(drop)?) };
        let wanted = crate::Runtime::cpu(1000).expect_err("too many").to_string();
        assert_eq!(format!("{:?}", fails().expect_err("too many")), wanted);
        assert_eq!(format!("{:?}", Failure::from("as it is")), "as it is");
    }
}
