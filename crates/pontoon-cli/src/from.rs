//! Errors that are one case of another.

/// `from!(Outer: Inner => Case, ...)` converts each `Inner` to `Outer::Case`, for the `?` operator.
macro_rules! from {
    ($outer:ty: $($inner:ty => $case:ident),* $(,)?) => {$(
        impl From<$inner> for $outer {
            fn from(error: $inner) -> Self {
                Self::$case(error)
            }
        }
    )*};
}

pub(crate) use from;
