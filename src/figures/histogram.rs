//! Histograms with fixed bounds.

/// How long things take, in seconds: from a blink to a day.
pub const SECONDS: &[f64] = &[
    0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0,
];

/// How many there are of something.
pub const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above them all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// Durations, in seconds.
    pub fn seconds() -> Self {
        Self::new(SECONDS)
    }

    pub fn sizes() -> Self {
        Self::new(SIZES)
    }

    /// Clocks go back, and a figure below nothing would spoil the sum.
    pub fn note(&mut self, value: f64) {
        let value = value.max(0.0);
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Each bound with how many were at most that, infinity last.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_at_or_below_their_bound_and_buckets_add_up() {
        let mut sizes = Histogram::sizes();
        for value in [1.0, 1.5, 2.0, 300.0, -4.0] {
            sizes.note(value);
        }
        let buckets: Vec<(f64, u64)> = sizes.buckets().collect();
        assert_eq!(buckets[..3], [(1.0, 2), (2.0, 4), (4.0, 4)]);
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 5)));
        assert_eq!(sizes.count(), 5);
        assert!((sizes.sum() - 304.5).abs() < 1e-9);
    }
}
