//! Statements that commit a batch in a database of jobs: their last part is the fence.

use poolcounter_jobs::postgres::statements::{AT_ONCE, FENCE};

/// A batch is committed only if the owner's row is as expected: otherwise the transaction fails, at its last statement.
#[test]
fn fence_of_a_batch_fails_where_it_changes_nothing() {
    let guard =
        "WHERE one = 1 AND epoch = $4 AND batch = $5 AND address = $6 RETURNING one) SELECT 1 / count(*) FROM kept";
    assert!(FENCE.starts_with("WITH kept AS (UPDATE owner SET batch = $1, attempt = $2,"), "{}", *FENCE);
    assert!(FENCE.ends_with(guard), "{}", *FENCE);
}

/// A batch of one kind of changes is that statement and the fence, in this order: the owner's row is locked last.
#[test]
fn batch_of_one_statement_ends_with_the_fence() {
    for (change, at_once) in &*AT_ONCE {
        let first = (1..).find(|n| !change.contains(&format!("${n}::"))).expect("it has few");
        let [batch, attempt, next, epoch, from, address] = [0, 1, 2, 3, 4, 5].map(|n| format!("${}", first + n));
        let begin = format!(
            "WITH done AS ({change} RETURNING 1), \
             kept AS (UPDATE owner SET batch = {batch}, attempt = {attempt}, next_id = coalesce({next}, next_id), until = "
        );
        let guard = format!(
            " WHERE one = 1 AND epoch = {epoch} AND batch = {from} AND address = {address} \
             AND (SELECT count(*) FROM done) >= 0 RETURNING one) SELECT 1 / count(*) FROM kept"
        );
        assert!(at_once.starts_with(&begin) && at_once.ends_with(&guard), "{at_once}");
    }
}
