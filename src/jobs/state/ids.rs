//! Ids of the tables of the state.

use poolcounter_core::id::id;

id! {
    /// Id of a tube.
    TubeId
}
id! {
    /// Id of the ready jobs of one tube that belong to one group, or to none.
    BucketId
}
id! {
    /// Id of a group of jobs.
    GroupId
}
id! {
    /// Id of a limit of several tubes together, or of a group.
    GateId
}
id! {
    /// Id of the tubes that the same limits hold back.
    LaneId
}
id! {
    /// Id of a name or a pattern that connections watch.
    FeedId
}
id! {
    /// Id of a set of watches.
    SetId
}
id! {
    /// Id of a root job.
    RootId
}
id! {
    /// Id of a command under way that goes through many tubes or jobs.
    SweepId
}
