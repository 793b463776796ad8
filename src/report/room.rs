//! Room for the rows of tables on a page.

/// Room for tables on a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Limit of rows per table.
    pub rows: usize,
    /// Limit of the bytes of all rows, by the largest possible size of each cell.
    pub bytes: usize,
}

/// Limit of rows per table that are ever considered.
pub const MOST_ROWS: usize = 300;

/// Returns the number of rows of each table that fit into a page with `room` bytes, which are less by these rows then.
/// `costs` has the bytes of every row. The smallest tables come first, so that a large table leaves out only its own
/// rows, the last ones.
pub fn fit(costs: &[Vec<usize>], room: &mut usize) -> Vec<usize> {
    let mut by_size: Vec<usize> = (0..costs.len()).collect();
    by_size.sort_by_key(|table| costs[*table].iter().sum::<usize>());
    let mut rows = vec![0; costs.len()];
    for table in by_size {
        for cost in &costs[table] {
            let Some(rest) = room.checked_sub(*cost) else { break };
            *room = rest;
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
        assert_eq!(fit(&costs, &mut 100), [5, 2, 4]);
        assert_eq!(fit(&costs, &mut 50), [2, 2, 4]);
        let mut room = 11;
        assert_eq!((fit(&costs, &mut room), room), (vec![0, 2, 1], 1));
        assert_eq!(fit(&[], &mut 10), [0; 0]);
    }
}
