//! Checks of the contracts; stub
