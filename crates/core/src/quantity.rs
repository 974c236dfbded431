//! Kubernetes quantities (`100Gi`, `500m`, `1e3`), exact and rounded up to whole bytes.

use std::fmt;
use std::str::FromStr;

/// An amount in thousandths, so that `500m` and `0.5` are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    milli: i128,
}

/// The text is not a Kubernetes quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a quantity: write a number with an optional unit, such as 100Gi, 1.5G or 500m")]
pub struct InvalidQuantity(String);

impl Quantity {
    /// The whole units (bytes, cores), rounded up: half a byte still needs a byte.
    pub fn units(self) -> i128 {
        self.milli.div_euclid(1000) + i128::from(self.milli.rem_euclid(1000) > 0)
    }

    /// Is it more than nothing?
    pub fn is_positive(self) -> bool {
        self.milli > 0
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli % 1000 == 0 { write!(f, "{}", self.milli / 1000) } else { write!(f, "{}m", self.milli) }
    }
}

impl FromStr for Quantity {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(|milli| Self { milli }).ok_or_else(|| InvalidQuantity(text.to_owned()))
    }
}

/// A unit as numerator and denominator of thousandths.
fn unit(suffix: &str) -> Option<(i128, i128)> {
    const KI: i128 = 1024;
    Some(match suffix {
        "" => (1000, 1),
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "k" => (1_000_000, 1),
        "M" => (1_000_000_000, 1),
        "G" => (1_000_000_000_000, 1),
        "T" => (1_000_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000_000, 1),
        "Ki" => (1000 * KI, 1),
        "Mi" => (1000 * KI.pow(2), 1),
        "Gi" => (1000 * KI.pow(3), 1),
        "Ti" => (1000 * KI.pow(4), 1),
        "Pi" => (1000 * KI.pow(5), 1),
        "Ei" => (1000 * KI.pow(6), 1),
        _ => return exponent(suffix),
    })
}

fn exponent(suffix: &str) -> Option<(i128, i128)> {
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let magnitude = 10_i128.checked_pow(power.unsigned_abs())?;
    if power < 0 { Some((1000, magnitude)) } else { Some((magnitude.checked_mul(1000)?, 1)) }
}

fn parse(text: &str) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (numerator, denominator) = unit(suffix)?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(denominator)?;
    let scaled = digits.checked_mul(numerator)?;
    let milli = scaled / scale + i128::from(scaled % scale > 0);
    Some(if negative { -milli } else { milli })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> i128 {
        text.parse::<Quantity>().unwrap().units()
    }

    #[test]
    fn every_suffix_means_what_kubernetes_says() {
        let cases = [
            ("0", 0),
            ("1", 1),
            ("500m", 1),
            ("0.5Gi", 536_870_912),
            ("100Gi", 107_374_182_400),
            ("1.5G", 1_500_000_000),
            ("12E", 12_000_000_000_000_000_000),
            ("1Ei", 1_152_921_504_606_846_976),
            ("1e3", 1000),
            ("1E3", 1000),
            ("5e-1", 1),
            (".5k", 500),
            ("1.k", 1000),
            ("1n", 1),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn equal_amounts_are_equal_however_they_are_written() {
        assert_eq!("1Gi".parse::<Quantity>(), "1024Mi".parse());
        assert_eq!("0.5".parse::<Quantity>(), "500m".parse());
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "Gi", "1GiB", "1..2", "ten", "1e", "1e99", "-", "0x10", "1 Gi"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }
}
