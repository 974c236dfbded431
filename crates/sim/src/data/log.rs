//! A copy of a partition's records, by terms of office. Whoever led in a term wrote alone, so a place in a term is one record: what was
//! cut off and written again is never taken for what was there before.

/// The records of one copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Log {
    /// Terms, and where they begin.
    terms: Vec<(u32, u64)>,
    end: u64,
}

impl Log {
    /// How many records there are.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The leader of a term writes.
    pub(super) fn append(&mut self, term: u32, records: u64) {
        if self.terms.last().is_none_or(|(last, _)| *last != term) {
            self.terms.push((term, self.end));
        }
        self.end += records;
    }

    fn end_of(&self, index: usize) -> u64 {
        self.terms.get(index + 1).map_or(self.end, |(_, next)| *next)
    }

    /// How many records both begin with.
    pub(super) fn shared(&self, other: &Self) -> u64 {
        let same = self.terms.iter().zip(&other.terms).take_while(|(one, other)| one == other).count();
        same.checked_sub(1).map_or(0, |last| self.end_of(last).min(other.end_of(last)))
    }

    /// Does it hold all of this?
    pub(super) fn has_all_of(&self, other: &Self) -> bool {
        self.shared(other) == other.end
    }

    /// Cuts off what follows.
    pub(super) fn truncate(&mut self, upto: u64) {
        self.end = self.end.min(upto);
        let end = self.end;
        self.terms.retain(|(_, start)| *start < end);
    }

    /// Copies from another one, which begins with all that is here.
    pub(super) fn copy(&mut self, source: &Self, upto: u64) {
        let from = self.end;
        self.terms.extend(source.terms.iter().filter(|(_, start)| *start >= from && *start < upto));
        self.end = upto;
    }

    /// Becomes the beginning of another one.
    pub(super) fn become_start_of(&mut self, source: &Self, upto: u64) {
        if self.terms != source.terms {
            self.terms.clone_from(&source.terms);
        }
        self.end = source.end;
        self.truncate(upto);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(terms: &[(u32, u64)]) -> Log {
        let mut log = Log::default();
        terms.iter().for_each(|(term, records)| log.append(*term, *records));
        log
    }

    #[test]
    fn what_was_written_again_is_something_else() {
        let acknowledged = log(&[(1, 10)]);
        assert!(log(&[(1, 10), (2, 5)]).has_all_of(&acknowledged));
        assert!(!log(&[(1, 8), (2, 5)]).has_all_of(&acknowledged), "as long, and not the same");
        assert!(!log(&[(2, 10)]).has_all_of(&acknowledged));
        assert!(log(&[]).has_all_of(&Log::default()));
        assert_eq!(log(&[(1, 8), (2, 5)]).shared(&acknowledged), 8);
    }

    #[test]
    fn a_copy_is_what_it_was_copied_from() {
        let source = log(&[(1, 10), (3, 5), (4, 5)]);
        let mut copy = log(&[(1, 10), (2, 7)]);
        copy.truncate(copy.shared(&source));
        copy.copy(&source, 12);
        assert_eq!(copy, log(&[(1, 10), (3, 2)]));
        copy.copy(&source, 20);
        assert_eq!(copy, source);
        copy.truncate(15);
        assert_eq!(copy, log(&[(1, 10), (3, 5)]));
        copy.become_start_of(&source, 16);
        assert_eq!(copy, log(&[(1, 10), (3, 5), (4, 1)]));
    }
}
