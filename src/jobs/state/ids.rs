//! Ids of the tables of the state.

use poolcounter_core::id::id;

id! {
    /// A tube.
    TubeId
}
id! {
    /// The ready jobs of one tube that belong to one group, or to none.
    BucketId
}
id! {
    /// A group of jobs.
    GroupId
}
id! {
    /// A limit of several tubes together, or of a group.
    GateId
}
id! {
    /// The tubes that the same limits hold back.
    LaneId
}
id! {
    /// A name or a pattern that connections watch.
    FeedId
}
id! {
    /// A set of watches.
    SetId
}
