//! Atomics whose every use is a step of a schedule. Orderings are those of the standard library; under a schedule, where one
//! thread runs at a time, each of them is sequentially consistent.

pub(crate) use std::sync::atomic::{Ordering, fence};

use super::schedule::step;

macro_rules! stepped {
    ($name:ident, $value:ty) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name {
            inner: std::sync::atomic::$name,
        }

        #[allow(dead_code, reason = "not every type needs every operation")]
        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                $name { inner: std::sync::atomic::$name::new(value) }
            }

            #[inline]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                step();
                self.inner.load(order)
            }

            #[inline]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                step();
                self.inner.store(value, order);
            }

            #[inline]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.inner.swap(value, order)
            }

            #[inline]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.inner.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! stepped_number {
    ($name:ident, $value:ty, $($operation:ident),+) => {
        stepped!($name, $value);

        #[allow(dead_code, reason = "not every type needs every operation")]
        impl $name {
            $(
                #[inline]
                pub(crate) fn $operation(&self, value: $value, order: Ordering) -> $value {
                    step();
                    self.inner.$operation(value, order)
                }
            )+
        }
    };
}

stepped!(AtomicBool, bool);
stepped_number!(AtomicU64, u64, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_or);
stepped_number!(AtomicI64, i64, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_or);
stepped_number!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_or);
