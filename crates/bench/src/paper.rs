//! The results of the papers, and the number of machines.

/// Figure, part of the case, unit, and the paper's result.
const VALUES: [(&str, &str, &str, &str); 20] = [
    ("tods-7", "through", "reads/s", "11,160 on 36 nodes"),
    ("tods-8", "reads of tods-8, 1 KB", "reads/s", "11,160 on 36 nodes"),
    ("tods-8", "reads of tods-8, 128 KB", "reads/s", "1,332 on 36 nodes"),
    ("tods-8", "payload of tods-8, 128 KB", "MB/s", "170 on 36 nodes"),
    ("tods-10", "through", "reads/s", "2,740 on 36 nodes"),
    ("tods-11", "reads of tods-11, 1 KB", "reads/s", "2,740 on 36 nodes"),
    ("tods-11", "payload of tods-11, 128 KB", "MB/s", "46 on 36 nodes"),
    ("tods-12", "object-cache hits", "hits/s", "13,392 on 36 nodes"),
    ("tods-13", "of tods-13, 1 KB", "reads/s", "13,392 on 36 nodes"),
    ("tods-14", "", "transactions/s", "396 on 36 bricks"),
    ("tods-15", "distributed beside local", "transactions/s", "a third of local"),
    ("tods-scaling", "", "operations/s", "linear up to 36 nodes"),
    ("osbdb-t1", "", "lines", "2,161; EBOFS 6,600"),
    ("osbdb-2", "", "objects/s", "flat (B-tree)"),
    ("buddy-t1", "page fetch, 3 clients", "ms", "2.4; Base 1.3"),
    ("buddy-t1", "page fetch, 5 clients", "ms", "2.6; Base 1.4"),
    ("buddy-t1", "commit of a transaction that reads, 3 clients", "ms", "2.4; Base 2.5"),
    ("buddy-t1", "commit of a transaction that reads, 5 clients", "ms", "5.7; Base 5.5"),
    ("buddy-t1", "redirector crossing", "ms", "0.16"),
    ("buddy-t1", "peer fetch", "ms", "1.8 to 5.5"),
];

/// The paper's result for a case of a figure, if it has one.
pub(crate) fn value(figure: &str, case: &str, unit: &str) -> Option<&'static str> {
    let matching = VALUES.iter().find(|(id, part, of, _)| *id == figure && *of == unit && case.contains(part));
    matching.map(|(_, _, _, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_its_case_only() {
        assert_eq!(value("tods-8", "reads of tods-8, 128 KB", "reads/s"), Some("1,332 on 36 nodes"));
        assert_eq!(value("tods-8", "reads of tods-8, 16 KB", "reads/s"), None);
        assert_eq!(value("tods-7", "in-memory reads of 1 KB directly from a brick, pipelining 1", "reads/s"), None);
        assert_eq!(value("commit", "16 committers", "transactions/s"), None);
    }

    #[test]
    fn every_number_is_of_a_figure_that_is_measured() {
        let measured: Vec<&str> = [&crate::tods::FIGURES[..], &crate::osbdb::FIGURES, &crate::buddy::FIGURES]
            .concat()
            .iter()
            .flat_map(|(ids, _)| ids.split(' '))
            .collect();
        for (id, ..) in VALUES {
            assert!(measured.contains(&id), "{id}");
        }
    }
}
