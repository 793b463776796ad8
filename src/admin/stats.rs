//! Statistics of the administration.

use poolcounter_core::stats::statistics;

statistics! {
    /// Statistics of the administration.
    AdminStat {
        Commands = "commands", Count, "Commands of administrators, including refused ones.";
        Draining = "draining", Level, "1 while nothing new is granted, because the daemon is to end once all is given back.";
        Left = "left", Level, "Claims that clients still hold or wait for, while draining is 1.";
    }
}
