//! The exponent of growth.

/// Returns the exponent of the power of x that fits the points best: the slope of a line through their
/// logarithms, by least squares. Nothing where there are less than two different x, or a cost of 0.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    if logs.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    let count = logs.iter().map(|_| 1.0).sum::<f64>();
    let mean_x = logs.iter().map(|log| log.0).sum::<f64>() / count;
    let mean_y = logs.iter().map(|log| log.1).sum::<f64>() / count;
    let square: f64 = logs.iter().map(|log| (log.0 - mean_x).powi(2)).sum();
    let product: f64 = logs
        .iter()
        .map(|log| (log.0 - mean_x) * (log.1 - mean_y))
        .sum();
    (square > 0.0).then(|| product / square)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cost: impl Fn(f64) -> f64) -> f64 {
        let sizes = [1e3, 1e4, 1e5, 1e6];
        exponent(&sizes.map(|x| (x, cost(x)))).unwrap()
    }

    #[test]
    fn powers_are_found() {
        assert!(of(|_| 7.0).abs() < 1e-9);
        assert!((of(|x| 3.0 * x) - 1.0).abs() < 1e-9);
        assert!((of(|x| x * x) - 2.0).abs() < 1e-9);
        assert!((of(f64::sqrt) - 0.5).abs() < 1e-9);
        // n log n is little more than n.
        let almost_linear = of(|x| x * x.ln());
        assert!(
            1.05 < almost_linear && almost_linear < 1.15,
            "{almost_linear}"
        );
    }

    #[test]
    fn one_point_or_no_cost_has_no_exponent() {
        assert_eq!(exponent(&[]), None);
        assert_eq!(exponent(&[(5.0, 1.0)]), None);
        assert_eq!(exponent(&[(5.0, 1.0), (5.0, 2.0)]), None);
        assert_eq!(exponent(&[(1.0, 0.0), (2.0, 1.0)]), None);
    }
}
