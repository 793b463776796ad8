//! How many rows of each table a page has room for.

/// How much of the tables a page has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// How many rows of each table, at most.
    pub rows: usize,
    /// What all rows may take together, in bytes, by what each cell may take at most.
    pub bytes: usize,
    /// Whether times come with all of their counts.
    pub has_all_times: bool,
}

/// How many rows of a table are looked at, however much room there is.
pub const MOST_ROWS: usize = 300;

/// Returns how many rows of each table fit into a page with room for so many bytes. `costs` has those of every row. The smallest
/// tables come first, so that a large one leaves out only its own rows, the last ones.
pub fn fit(costs: &[Vec<usize>], mut room: usize) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..costs.len()).collect();
    by_size.sort_by_key(|table| costs[*table].iter().sum::<usize>());
    let mut rows = vec![0; costs.len()];
    for table in by_size {
        for cost in &costs[table] {
            let Some(rest) = room.checked_sub(*cost) else { break };
            room = rest;
            rows[table] += 1;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_table_is_cut_first() {
        let costs = [vec![10; 5], vec![3; 2], vec![4; 4]];
        assert_eq!(fit(&costs, 100), [5, 2, 4]);
        assert_eq!(fit(&costs, 50), [2, 2, 4]);
        assert_eq!(fit(&costs, 10), [0, 2, 1]);
        assert_eq!(fit(&[], 10), [0; 0]);
    }
}
