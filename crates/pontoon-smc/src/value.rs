//! Values that cells and slices are of.

/// Bytes and back, in the order of this machine.
pub(crate) mod sealed {
    pub trait Bytes: Copy {
        /// How many there are: 1, 2, 4 or 8.
        const BYTES: usize;

        /// Puts them at the beginning of `to`.
        fn put(self, to: &mut [u8]);

        /// Takes them from the beginning of `from`.
        fn get(from: &[u8]) -> Self;
    }

    pub trait Sum: Bytes + PartialEq {
        fn plus(self, n: Self) -> Self;
    }
}

use sealed::{Bytes, Sum};

/// A number of 1, 2, 4 or 8 bytes, in the order of this machine; none else is.
pub trait Value: Bytes + Send + Sync + 'static {}

/// A whole number of 4 or 8 bytes, which can be changed at home at once against all others; none else is.
pub trait Integer: Value + Sum {}

macro_rules! values {
    ($($value:ty),*) => {
        $(
            impl Bytes for $value {
                const BYTES: usize = size_of::<$value>();

                fn put(self, to: &mut [u8]) {
                    to[..Self::BYTES].copy_from_slice(&self.to_ne_bytes());
                }

                fn get(from: &[u8]) -> Self {
                    let mut bytes = [0; size_of::<$value>()];
                    bytes.copy_from_slice(&from[..Self::BYTES]);
                    Self::from_ne_bytes(bytes)
                }
            }

            impl Value for $value {}
        )*
    };
}

macro_rules! integers {
    ($($value:ty),*) => {
        $(
            impl Sum for $value {
                fn plus(self, n: Self) -> Self {
                    self.wrapping_add(n)
                }
            }

            impl Integer for $value {}
        )*
    };
}

values!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);
integers!(u32, i32, u64, i64);
