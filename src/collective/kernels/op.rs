//! Operations that combine two accumulators: sum, product, minimum and maximum.

/// Combines the result so far with the next rank's contribution.
pub(super) trait Op<A> {
    /// Returns `so_far ∘ next`.
    fn apply(so_far: A, next: A) -> A;
}

/// Sum; integers wrap.
pub(super) struct Sum;
/// Product; integers wrap.
pub(super) struct Product;
/// Minimum; NaN if either operand is NaN.
pub(super) struct Min;
/// Maximum; NaN if either operand is NaN.
pub(super) struct Max;

macro_rules! float_ops {
    ($($float:ty),*) => {$(
        impl Op<$float> for Sum {
            #[inline(always)]
            fn apply(so_far: $float, next: $float) -> $float { so_far + next }
        }
        impl Op<$float> for Product {
            #[inline(always)]
            fn apply(so_far: $float, next: $float) -> $float { so_far * next }
        }
        // Written as a comparison that is false for NaN: a NaN in `so_far` stays, a NaN in `next`
        // is taken.
        impl Op<$float> for Min {
            #[inline(always)]
            fn apply(so_far: $float, next: $float) -> $float {
                if so_far <= next || so_far.is_nan() { so_far } else { next }
            }
        }
        impl Op<$float> for Max {
            #[inline(always)]
            fn apply(so_far: $float, next: $float) -> $float {
                if so_far >= next || so_far.is_nan() { so_far } else { next }
            }
        }
    )*};
}
float_ops!(f32, f64);

macro_rules! integer_ops {
    ($($integer:ty),*) => {$(
        impl Op<$integer> for Sum {
            #[inline(always)]
            fn apply(so_far: $integer, next: $integer) -> $integer { so_far.wrapping_add(next) }
        }
        impl Op<$integer> for Product {
            #[inline(always)]
            fn apply(so_far: $integer, next: $integer) -> $integer { so_far.wrapping_mul(next) }
        }
        impl Op<$integer> for Min {
            #[inline(always)]
            fn apply(so_far: $integer, next: $integer) -> $integer { so_far.min(next) }
        }
        impl Op<$integer> for Max {
            #[inline(always)]
            fn apply(so_far: $integer, next: $integer) -> $integer { so_far.max(next) }
        }
    )*};
}
integer_ops!(u8, i8, i16, i32, i64);
