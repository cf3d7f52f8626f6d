//! The residual loss of a window on Gilbert's link, by large deviations.
//!
//! A batch of losses stays unsolved for as long as more packets are lost than repairs arrive. On a link with
//! two states, of which the bad one loses everything, the probability that this lasts for n packets falls
//! like ρⁿ. ρ is the largest eigenvalue of a 2 × 2 matrix of moment generating functions, minimised over its
//! parameter θ.

/// Number of steps in the search for the smallest exponent.
const STEPS: u32 = 40;
/// Upper end of the search.
const THETA_MAX: f64 = 8.0;

/// Returns the share of packets that a window of `window` packets at `rate` repairs per packet leaves lost,
/// if the link loses `loss` of all packets in bursts of `burst` packets on average.
pub(super) fn residual(loss: f64, burst: f64, rate: f64, window: f64) -> f64 {
    if loss <= 0.0 {
        return 0.0;
    }
    let recovery = 1.0 / burst.max(1.0);
    let failure = recovery * loss / (1.0 - loss).max(f64::MIN_POSITIVE);
    if failure >= 1.0 {
        return loss;
    }
    let link = Link { failure, recovery, rate };
    loss * (window * (1.0 + rate) * link.smallest_exponent().min(0.0)).exp()
}

struct Link {
    /// Probability of a change from the good to the bad state, with each packet.
    failure: f64,
    /// Probability of a change back.
    recovery: f64,
    rate: f64,
}

impl Link {
    /// Logarithm of the largest eigenvalue at θ.
    fn exponent(&self, theta: f64) -> f64 {
        let good = (1.0 + self.rate * (-theta).exp()) / (1.0 + self.rate);
        let bad = (theta.exp() + self.rate) / (1.0 + self.rate);
        let trace = (1.0 - self.failure) * good + (1.0 - self.recovery) * bad;
        let determinant = (1.0 - self.failure - self.recovery) * good * bad;
        let root = (trace * trace - 4.0 * determinant).max(0.0).sqrt();
        f64::midpoint(trace, root).ln()
    }

    /// Golden section: the exponent is convex.
    fn smallest_exponent(&self) -> f64 {
        let (mut low, mut high) = (0.0, THETA_MAX);
        for _ in 0..STEPS {
            let (left, right) = (low + (high - low) * 0.382, low + (high - low) * 0.618);
            if self.exponent(left) < self.exponent(right) {
                high = right;
            } else {
                low = left;
            }
        }
        self.exponent(f64::midpoint(low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lowest rate that leaves one packet in 100,000, in percent.
    fn least_percent(loss: f64, burst: f64, window: f64) -> f64 {
        let (mut low, mut high) = (0.001_f64, 8.0_f64);
        for _ in 0..50 {
            let middle = (low * high).sqrt();
            if residual(loss, burst, middle, window) > 1e-5 { low = middle } else { high = middle }
        }
        (high * 1_000.0).round() / 10.0
    }

    /// Figures of the model that simulations confirm.
    #[test]
    fn the_least_rate_grows_with_loss_and_burst_length() {
        let row = |burst, window| [0.0001, 0.001, 0.01, 0.05].map(|loss| least_percent(loss, burst, window));
        assert_eq!(row(1.0, 512.0), [0.6, 1.6, 4.7, 12.8]);
        assert_eq!(row(3.0, 512.0), [1.6, 3.8, 9.1, 20.4]);
        assert_eq!(row(8.0, 512.0), [4.0, 9.0, 18.3, 35.2]);
        assert_eq!(row(20.0, 512.0), [9.6, 20.7, 38.3, 64.8]);
        assert_eq!(
            [1.0, 3.0, 8.0, 20.0].map(|burst| least_percent(0.01, burst, 256.0)),
            [7.0, 14.7, 31.7, 69.3]
        );
    }

    #[test]
    fn impossible_links_lose_what_they_lose() {
        assert_eq!(residual(0.0, 3.0, 0.1, 512.0), 0.0);
        assert_eq!(residual(1.0, 1.0, 0.1, 512.0), 1.0);
        assert!((residual(0.9, 1.0, 1.0, 512.0) - 0.9).abs() < 1e-9);
    }
}
