//! Maintenance windows: Quartz cron expressions in UTC.
//!
//! A window is open in every second that one of its expressions matches, so `* * 0-1 ? * SUN,MON *` is open for two
//! hours on Sundays and Mondays. Without expressions it is always open. An expression that cannot be understood never
//! matches, and is reported.
//!
//! Anybody may have written them, and they are read in every pass: their number and length are bounded here too, not only in
//! the schema, and what is read takes the same little memory whatever they say.

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// How far ahead an opening is looked for: leap days can be eight years apart.
const HORIZON_DAYS: i64 = 8 * 366;
/// The longest expression. One that lists every second, minute, hour, day and month by itself is shorter.
pub const LONGEST: usize = 1024;
/// How many expressions are read. Those after them never open.
pub const MOST: usize = 128;
/// How much of an expression is repeated when it is reported.
const REPEATED: usize = 100;
/// The years that Quartz knows.
const YEARS: (u64, u64) = (1970, 2199);
const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Whether maintenance may happen now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Open,
    /// Until then, or for as long as can be seen.
    Closed {
        next: Option<Timestamp>,
    },
}

/// The maintenance windows of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// None: there was no expression, which means always.
    schedules: Option<Vec<Schedule>>,
    /// The expressions that could not be understood, and why.
    pub problems: Vec<Problem>,
}

/// An expression that is not a Quartz cron expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("maintenance window {expression:?} never opens: {problem}")]
pub struct Problem {
    pub expression: String,
    pub problem: String,
}

impl Problem {
    fn new(expression: &str, problem: String) -> Self {
        Self { expression: expression.chars().take(REPEATED).collect(), problem }
    }
}

impl Windows {
    pub fn parse<E: AsRef<str>>(expressions: &[E]) -> Self {
        let mut windows = Self { schedules: (!expressions.is_empty()).then(Vec::new), problems: Vec::new() };
        for expression in expressions.iter().take(MOST).map(AsRef::as_ref) {
            match Schedule::parse(expression) {
                Ok(schedule) => windows.schedules.get_or_insert_default().push(schedule),
                Err(problem) => windows.problems.push(Problem::new(expression, problem)),
            }
        }
        if let Some(first) = expressions.get(MOST) {
            let found = expressions.len();
            let problem = format!("there are {found} windows, and only the first {MOST} are used");
            windows.problems.push(Problem::new(first.as_ref(), problem));
        }
        windows
    }

    pub fn is_open(&self, now: Timestamp) -> bool {
        let matches = |schedules: &Vec<Schedule>| schedules.iter().any(|schedule| schedule.matches(now));
        self.schedules.as_ref().is_none_or(matches)
    }

    /// The first second after now in which a window is open.
    pub fn next_opening(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.schedules {
            None => Some(now),
            Some(schedules) => schedules.iter().filter_map(|schedule| schedule.next(now)).min(),
        }
    }

    pub fn opening(&self, now: Timestamp) -> Opening {
        if self.is_open(now) { Opening::Open } else { Opening::Closed { next: self.next_opening(now) } }
    }
}

/// One expression. Sets of small numbers are bits.
#[derive(Clone, Debug)]
struct Schedule {
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    days: Days,
    /// None: every year.
    years: Option<Years>,
}

/// A set of years, as bits from the first year on.
#[derive(Clone, Copy, Debug, Default)]
struct Years([u64; 4]);

impl Years {
    fn insert(&mut self, year: u64) {
        let (word, bit) = Self::place(year);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    fn has(self, year: i16) -> bool {
        let Ok(year) = u64::try_from(year) else { return false };
        let (word, bit) = Self::place(year);
        year >= YEARS.0 && self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn place(year: u64) -> (usize, u64) {
        let offset = year.saturating_sub(YEARS.0);
        (usize::try_from(offset / 64).unwrap_or(usize::MAX), 1 << (offset % 64))
    }
}

/// Which days of a month. Weekdays count from 1, Sunday.
#[derive(Clone, Debug)]
enum Days {
    OfMonth(u64),
    /// The last day of the month, or some days before it.
    Last {
        before: i8,
    },
    /// The working day (Monday to Friday) nearest to a day, in the same month; none: to the last day.
    NearestWorkday(Option<i8>),
    OfWeek(u64),
    /// `6#3`: the third Friday.
    Nth {
        weekday: i8,
        nth: i8,
    },
    /// `6L`: the last Friday.
    LastOfWeek(i8),
}

impl Schedule {
    fn parse(expression: &str) -> Result<Self, String> {
        if expression.len() > LONGEST {
            return Err(format!("it has {} bytes, and {LONGEST} are allowed", expression.len()));
        }
        let upper = expression.to_ascii_uppercase();
        let fields: Vec<&str> = upper.split_whitespace().collect();
        let (&[seconds, minutes, hours, day, months, weekday], year) = match fields.as_slice() {
            [rest @ .., year] if fields.len() == 7 => {
                (<&[&str; 6]>::try_from(rest).map_err(|error| error.to_string())?, Some(*year))
            }
            all => {
                let six = <&[&str; 6]>::try_from(all);
                (six.map_err(|_| format!("it has {} fields instead of 6 or 7", all.len()))?, None)
            }
        };
        Ok(Self {
            seconds: bits("seconds", seconds, 0, 59, &[])?,
            minutes: bits("minutes", minutes, 0, 59, &[])?,
            hours: bits("hours", hours, 0, 23, &[])?,
            months: bits("month", months, 1, 12, &MONTHS)?,
            days: match (day, weekday) {
                (day, "?") if day != "?" => days_of_month(day)?,
                ("?", weekday) if weekday != "?" => days_of_week(weekday)?,
                _ => return Err("exactly one of day-of-month and day-of-week has to be ?".to_owned()),
            },
            years: match year {
                None | Some("*") => None,
                Some(year) => Some(years(year)?),
            },
        })
    }

    fn matches(&self, now: Timestamp) -> bool {
        let now = TimeZone::UTC.to_datetime(now);
        let time = now.time();
        self.matches_day(now.date())
            && has(self.hours, time.hour())
            && has(self.minutes, time.minute())
            && has(self.seconds, time.second())
    }

    fn matches_day(&self, day: Date) -> bool {
        self.matches_month(day) && self.days.match_day(day)
    }

    fn matches_month(&self, day: Date) -> bool {
        self.years.is_none_or(|years| years.has(day.year())) && has(self.months, day.month())
    }

    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let after = TimeZone::UTC.to_datetime(now.checked_add(1.second()).ok()?);
        let first = (after.hour(), after.minute(), after.second());
        let today = after.date();
        let end = today.checked_add(HORIZON_DAYS.days()).unwrap_or(Date::MAX);
        let mut day = today;
        while day < end {
            if !self.matches_month(day) {
                day = day.last_of_month().tomorrow().ok()?;
                continue;
            }
            let earliest = if day == today { first } else { (0, 0, 0) };
            if self.days.match_day(day)
                && let Some((hour, minute, second)) = self.first_time(earliest)
            {
                let found = day.at(hour, minute, second, 0);
                return TimeZone::UTC.to_timestamp(found).ok();
            }
            day = day.tomorrow().ok()?;
        }
        None
    }

    /// The first matching time of a day, not before that one.
    fn first_time(&self, earliest: (i8, i8, i8)) -> Option<(i8, i8, i8)> {
        let (hour, minute, second) = earliest;
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = first_from(self.seconds, second)
            {
                return Some((hour, minute, second));
            }
            if let Some(minute) = first_from(self.minutes, minute + 1) {
                return Some((hour, minute, first_from(self.seconds, 0)?));
            }
        }
        let hour = first_from(self.hours, hour + 1)?;
        Some((hour, first_from(self.minutes, 0)?, first_from(self.seconds, 0)?))
    }
}

impl Days {
    fn match_day(&self, day: Date) -> bool {
        let last = day.days_in_month();
        let weekday = day.weekday().to_sunday_one_offset();
        match *self {
            Self::OfMonth(days) => has(days, day.day()),
            Self::Last { before } => day.day() == last - before,
            Self::NearestWorkday(wanted) => Some(day.day()) == nearest_workday(day, wanted.unwrap_or(last)),
            Self::OfWeek(weekdays) => has(weekdays, weekday),
            Self::Nth { weekday: wanted, nth } => weekday == wanted && (day.day() - 1) / 7 + 1 == nth,
            Self::LastOfWeek(wanted) => weekday == wanted && day.day() + 7 > last,
        }
    }
}

/// The working day nearest to a day of this month, without leaving the month.
fn nearest_workday(month: Date, wanted: i8) -> Option<i8> {
    let last = month.days_in_month();
    let wanted = wanted.min(last);
    let weekday = date(month.year(), month.month(), wanted).weekday().to_sunday_one_offset();
    Some(match weekday {
        1 if wanted == last => wanted - 2,
        1 => wanted + 1,
        7 if wanted == 1 => wanted + 2,
        7 => wanted - 1,
        _ => wanted,
    })
}

fn days_of_month(text: &str) -> Result<Days, String> {
    let day = |text: &str| number("day-of-month", text, 1, 31, &[]).map(|day| day as i8);
    Ok(match text.split_once('-') {
        Some(("L", before)) => Days::Last { before: number("day-of-month", before, 0, 30, &[])? as i8 },
        _ if text == "L" => Days::Last { before: 0 },
        _ if text == "LW" => Days::NearestWorkday(None),
        _ => match text.strip_suffix('W') {
            Some(text) => Days::NearestWorkday(Some(day(text)?)),
            None => Days::OfMonth(bits("day-of-month", text, 1, 31, &[])?),
        },
    })
}

fn days_of_week(text: &str) -> Result<Days, String> {
    let weekday = |text: &str| number("day-of-week", text, 1, 7, &WEEKDAYS).map(|day| day as i8);
    if text == "L" {
        return Ok(Days::OfWeek(1 << 7));
    }
    if let Some((day, nth)) = text.split_once('#') {
        let nth = number("day-of-week", nth, 1, 5, &[])? as i8;
        return Ok(Days::Nth { weekday: weekday(day)?, nth });
    }
    match text.strip_suffix('L') {
        Some(day) => Ok(Days::LastOfWeek(weekday(day)?)),
        None => Ok(Days::OfWeek(bits("day-of-week", text, 1, 7, &WEEKDAYS)?)),
    }
}

/// The values of a field whose values are small numbers.
fn bits(name: &str, text: &str, min: u64, max: u64, names: &[&str]) -> Result<u64, String> {
    let mut bits = 0;
    each(name, text, (min, max), names, |value| bits |= 1 << value)?;
    Ok(bits)
}

fn years(text: &str) -> Result<Years, String> {
    let mut years = Years::default();
    each("year", text, YEARS, &[], |year| years.insert(year))?;
    Ok(years)
}

/// All values of a field: lists of values, ranges (which may wrap around) and steps.
fn each(
    name: &str,
    text: &str,
    (min, max): (u64, u64),
    names: &[&str],
    mut add: impl FnMut(u64),
) -> Result<(), String> {
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => (range, Some(number(name, step, 1, max, &[])?)),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => {
                (number(name, first, min, max, names)?, number(name, last, min, max, names)?)
            }
            None if range == "*" || (range.is_empty() && step.is_some()) => (min, max),
            None => {
                let value = number(name, range, min, max, names)?;
                (value, if step.is_some() { max } else { value })
            }
        };
        let size = max - min + 1;
        let length = (last + size - first) % size;
        let reached = (0..=length).step_by(step.unwrap_or(1) as usize);
        reached.for_each(|offset| add(min + (first - min + offset) % size));
    }
    Ok(())
}

fn number(field: &str, text: &str, min: u64, max: u64, names: &[&str]) -> Result<u64, String> {
    if let Some(index) = names.iter().position(|name| *name == text) {
        return Ok(index as u64 + min);
    }
    let value =
        text.parse::<u64>().map_err(|_| format!("{text:?} is not understood in the field {field}"))?;
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{value} is not between {min} and {max} in the field {field}"))
    }
}

fn has(bits: u64, value: i8) -> bool {
    first_from(bits, value) == Some(value)
}

/// The first number in the set from this one on.
fn first_from(bits: u64, value: i8) -> Option<i8> {
    let from = bits >> value << value;
    (from != 0).then(|| from.trailing_zeros() as i8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        format!("{time}Z").parse().unwrap()
    }

    #[test]
    fn a_window_is_open_to_the_second() {
        let windows = Windows::parse(&["* * 0-1 ? * SUN,MON *"]);
        // 2026-03-01 is a Sunday.
        for (time, is_open) in [
            ("2026-02-28T23:59:59", false),
            ("2026-03-01T00:00:00", true),
            ("2026-03-01T01:59:59.999", true),
            ("2026-03-01T02:00:00", false),
            ("2026-03-02T00:30:00", true),
            ("2026-03-03T00:30:00", false),
        ] {
            assert_eq!(windows.is_open(at(time)), is_open, "{time}");
        }
        let next = at("2026-03-08T00:00:00");
        assert_eq!(windows.opening(at("2026-03-02T02:00:00")), Opening::Closed { next: Some(next) });
        assert_eq!(windows.next_opening(at("2026-03-02T01:59:58")), Some(at("2026-03-02T01:59:59")));
    }

    #[test]
    fn every_form_of_quartz_opens_when_it_should() {
        let from = "2026-01-01T00:00:00";
        for (expression, next) in [
            ("0 0/20 3 ? * *", "2026-01-01T03:00:00"),
            ("0 5/20 0 * * ?", "2026-01-01T00:05:00"),
            ("30 */7 * * * ?", "2026-01-01T00:00:30"),
            ("0 0 22-2 ? * FRI-MON", "2026-01-02T00:00:00"),
            ("0 0 0 L * ?", "2026-01-31T00:00:00"),
            ("0 0 0 L-3 2 ?", "2026-02-25T00:00:00"),
            ("0 0 0 LW * ?", "2026-01-30T00:00:00"),
            ("0 0 0 15W 2 ?", "2026-02-16T00:00:00"),
            ("0 0 0 1W 8 ?", "2026-08-03T00:00:00"),
            ("0 0 0 ? * 6#3", "2026-01-16T00:00:00"),
            ("0 0 0 ? * FRIL", "2026-01-30T00:00:00"),
            ("0 0 0 ? * L", "2026-01-03T00:00:00"),
            ("0 0 0 ? mar-apr tue", "2026-03-03T00:00:00"),
            ("0 0 12 29 2 ?", "2028-02-29T12:00:00"),
            ("0 0 12 1 1 ? 2030", "2030-01-01T12:00:00"),
        ] {
            let windows = Windows::parse(&[expression]);
            assert_eq!(windows.problems, [], "{expression}");
            assert_eq!(windows.next_opening(at(from)), Some(at(next)), "{expression}");
            assert!(windows.is_open(at(next)), "{expression}");
        }
    }

    #[test]
    fn what_is_next_is_what_matches_first() {
        let windows = Windows::parse(&["7/13 3-50/11 5,17 ? * 2-6/2", "0 0 0 31 * ?"]);
        let start = at("2026-05-28T16:50:00");
        let next = windows.next_opening(start).unwrap();
        let first = (1..500_000).map(|second| start + second.seconds()).find(|time| windows.is_open(*time));
        assert_eq!(Some(next), first);
    }

    #[test]
    fn without_expressions_it_is_always_open_and_with_nonsense_never() {
        assert!(Windows::parse::<&str>(&[]).is_open(at("2026-01-01T00:00:00")));
        for nonsense in [
            "",
            "* * *",
            "* * * * * *",
            "* * * ? * ?",
            "60 * * ? * *",
            "* * 24 ? * *",
            "* * * ? * FOO",
            "* * * ? * 8",
            "*/0 * * ? * *",
            "* * * 1,L * ?",
            "a-b * * ? * *",
            "* * * ? * * 99999999999999999999",
            "- * * ? * *",
            "* * * ? * * * *",
            "1-2-3 * * ? * *",
            "0 0 0 32 * ?",
            "* * * ? ? *",
        ] {
            let windows = Windows::parse(&[nonsense]);
            assert_eq!(windows.problems.len(), 1, "{nonsense}");
            assert!(windows.problems[0].to_string().contains(&format!("{nonsense:?}")));
            assert_eq!(
                windows.opening(at("2026-01-01T00:00:00")),
                Opening::Closed { next: None },
                "{nonsense}"
            );
        }
    }

    /// Seen: 300 kB of `*,` were 150,000 lists of all seconds, in every pass.
    #[test]
    fn an_endless_expression_is_refused_before_it_is_read() {
        let endless = format!("{}* * * ? * *", "*,".repeat(150_000));
        let windows = Windows::parse(&[endless]);
        let said = windows.problems[0].to_string();
        assert!(said.contains("300011 bytes") && said.len() < 250, "{said}");
        assert!(!windows.is_open(at("2026-01-01T00:00:00")));
    }

    #[test]
    fn of_too_many_windows_the_first_are_used() {
        let mut many = vec!["0 0 0 1 1 ? 2030"; MOST];
        many[0] = "* * 2 ? * *";
        assert_eq!(Windows::parse(&many).problems, []);
        many.push("* * * ? * *");
        let windows = Windows::parse(&many);
        assert!(windows.problems[0].to_string().contains("there are 129 windows"), "{:?}", windows.problems);
        assert!(windows.is_open(at("2026-01-01T02:00:00")) && !windows.is_open(at("2026-01-01T03:00:00")));
    }

    #[test]
    fn the_longest_sensible_expression_is_short_enough() {
        let all = |range: std::ops::RangeInclusive<u32>| {
            range.map(|one| one.to_string()).collect::<Vec<_>>().join(",")
        };
        let (minutes, hours, days) = (all(0..=59), all(0..=23), all(1..=31));
        let expression = format!("{minutes} {minutes} {hours} {days} {} ? {}", all(1..=12), all(2026..=2060));
        let windows = Windows::parse(&[&expression]);
        assert_eq!(windows.problems, [], "{} bytes", expression.len());
        assert!(windows.is_open(at("2026-12-31T23:59:59")) && !windows.is_open(at("2061-01-01T00:00:00")));
    }

    #[test]
    fn a_day_that_never_comes_is_looked_for_in_its_own_months_only() {
        for never in ["0 0 0 30 2 ?", "0 0 0 ? * * 1970", "0 0 0 L-30 2,4 ?", "0 0 0 ? * * 2199"] {
            let windows = Windows::parse(&[never]);
            assert_eq!(windows.problems, [], "{never}");
            assert_eq!(windows.next_opening(at("2026-01-01T00:00:00")), None, "{never}");
        }
    }

    #[test]
    fn a_good_expression_works_beside_a_bad_one() {
        let windows = Windows::parse(&["nonsense", "* * * ? * *"]);
        assert!(windows.is_open(at("2026-01-01T00:00:00")));
        assert_eq!(windows.problems.len(), 1);
    }
}
