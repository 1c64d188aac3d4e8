//! The table: what was measured, the median of it, and whether ours is as far ahead as it should be.

/// The rates of one peer in all the rounds so far.
pub struct Row {
    pub what: &'static str,
    /// How many times as fast ours should be.
    pub wanted: Option<f64>,
    pub rates: Vec<f64>,
}

/// Prints the rows of one case. The first is ours.
pub fn print(title: &str, rows: &[Row]) {
    println!("\n{title:<40} {:>12} {:>10}  wanted", "events/s", "ours/peer");
    let ours = median(&rows[0].rates);
    for (at, row) in rows.iter().enumerate() {
        let rate = median(&row.rates);
        match at {
            0 => println!("{:<40} {:>12}", row.what, thousands(rate)),
            _ => println!(
                "{:<40} {:>12} {:>10.2}  {}",
                row.what,
                thousands(rate),
                ours / rate,
                verdict(row, ours / rate)
            ),
        }
    }
}

fn verdict(row: &Row, ratio: f64) -> String {
    match row.wanted {
        Some(wanted) if wanted <= ratio => format!("at least {wanted}: met"),
        Some(wanted) => format!("at least {wanted}: missed"),
        None => String::new(),
    }
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// `1234567.8` as `1,234,568`.
fn thousands(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8(groups.join(&b',')).expect("digits and commas")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(thousands(1_234_567.8), "1,234,568");
        assert_eq!(thousands(12.0), "12");
    }

    #[test]
    fn the_median_is_of_what_was_measured() {
        assert_eq!(median(&[3.0, 100.0, 1.0]), 3.0);
    }
}
