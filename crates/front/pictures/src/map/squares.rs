//! A squarified treemap: divides a rectangle into rectangles of given areas that are as square as
//! possible.

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// Divides a rectangle in proportion to weights, which are sorted in descending order.
pub fn divide(whole: Rect, weights: &[f64]) -> Vec<Rect> {
    let total: f64 = weights.iter().sum();
    let mut out = Vec::with_capacity(weights.len());
    if total <= 0.0 {
        return vec![Rect::default(); weights.len()];
    }
    let scale = whole.width * whole.height / total;
    let (mut room, mut rest) = (whole, weights);
    while !rest.is_empty() {
        let side = room.width.min(room.height);
        let (mut count, mut worst) = (1, f64::INFINITY);
        // Extend the row while that makes its worst rectangle more square.
        for n in 1..=rest.len() {
            let now = worst_of(rest.get(..n).unwrap_or_default(), scale, side);
            if now > worst {
                break;
            }
            (count, worst) = (n, now);
        }
        let (row, after) = rest.split_at(count);
        lay(row, scale, &mut room, &mut out);
        rest = after;
    }
    out
}

/// Returns the aspect ratio of the worst rectangle in a row.
fn worst_of(row: &[f64], scale: f64, side: f64) -> f64 {
    let sum = row.iter().sum::<f64>() * scale;
    let (first, last) = (row.first(), row.last());
    let (most, least) = (
        first.map_or(0.0, |w| w * scale),
        last.map_or(0.0, |w| w * scale),
    );
    if sum <= 0.0 || side <= 0.0 || least <= 0.0 {
        return f64::INFINITY;
    }
    let (sum, side) = (sum * sum, side * side);
    (side * most / sum).max(sum / (side * least))
}

/// Places a row along the shorter side of the remaining rectangle.
fn lay(row: &[f64], scale: f64, room: &mut Rect, out: &mut Vec<Rect>) {
    let sum = row.iter().sum::<f64>() * scale;
    let is_column = room.width >= room.height;
    let side = room.width.min(room.height).max(f64::MIN_POSITIVE);
    let deep = (sum / side).min(room.width.max(room.height));
    let mut at = 0.0;
    for weight in row {
        let long = if deep > 0.0 {
            weight * scale / deep
        } else {
            0.0
        };
        out.push(if is_column {
            Rect {
                x: room.x,
                y: room.y + at,
                width: deep,
                height: long,
            }
        } else {
            Rect {
                x: room.x + at,
                y: room.y,
                width: long,
                height: deep,
            }
        });
        at += long;
    }
    if is_column {
        (room.x, room.width) = (room.x + deep, room.width - deep)
    } else {
        (room.y, room.height) = (room.y + deep, room.height - deep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_those_of_the_weights() {
        let whole = Rect {
            x: 10.0,
            y: 20.0,
            width: 600.0,
            height: 400.0,
        };
        let weights = [6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0, 0.0];
        let rects = divide(whole, &weights);
        assert_eq!(rects.len(), weights.len());
        for (rect, weight) in rects.iter().zip(weights) {
            let area = rect.width * rect.height;
            assert!((area - weight * 10_000.0).abs() < 1.0, "{rect:?} {weight}");
            assert!(rect.x >= 9.9 && rect.x + rect.width <= 610.1, "{rect:?}");
            assert!(rect.y >= 19.9 && rect.y + rect.height <= 420.1, "{rect:?}");
        }
        assert_eq!(divide(whole, &[0.0]), [Rect::default()]);
        assert!(divide(whole, &[]).is_empty());
    }
}
