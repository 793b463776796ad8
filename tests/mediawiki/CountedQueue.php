<?php
// The queue, which notes what it counts as duplicates: MediaWiki's statistics go elsewhere in each version.

class CountedQueue extends JobQueuePoolCounter {
	protected function incrStats( $key, $type, $delta = 1 ) {
		if ( $key === 'dupe_pops' ) {
			file_put_contents( getenv( 'FARM' ) . '/duplicates', "$delta $type\n", FILE_APPEND | LOCK_EX );
		}
		parent::incrStats( $key, $type, $delta );
	}
}
