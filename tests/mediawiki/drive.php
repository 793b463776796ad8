<?php
// Requests of the test to a wiki's queue: drive.php --wiki=W REQUEST [ARGUMENT ...]. It answers with JSON.

use MediaWiki\MediaWikiServices;

require_once getenv( 'MW_INSTALL_PATH' ) . '/maintenance/Maintenance.php';

class Drive extends Maintenance {
	/** Number of jobs pushed at once in the comparison of queues. */
	private const BATCH = 500;

	public function __construct() {
		parent::__construct();
		$this->addArg( 'request', 'what to do' );
		$this->addArg( 'argument', 'of the request', false );
		$this->addArg( 'second', 'of the request', false );
	}

	public function memoryLimit() {
		return 'max';
	}

	public function execute() {
		$request = 'do' . ucfirst( $this->getArg( 0 ) );
		$answer = $this->$request( $this->getArg( 1 ), $this->getArg( 2 ) );
		fwrite( STDOUT, json_encode( $answer ) . "\n" );
	}

	private function group(): JobQueueGroup {
		return MediaWikiServices::getInstance()->getJobQueueGroup();
	}

	/** Pages that use the template. */
	private function doPages( $count ) {
		$user = User::newSystemUser( 'Maintenance script', [ 'steal' => true ] );
		for ( $n = 0; $n < $count; $n++ ) {
			// The class Title has other names in other versions.
			$title = MediaWikiServices::getInstance()->getTitleFactory()->newFromText( "Page $n" );
			$page = MediaWikiServices::getInstance()->getWikiPageFactory()->newFromTitle( $title );
			$page->doUserEditContent( new WikitextContent( "$n {{T}}" ), $user, 'test' );
			DeferredUpdates::doUpdates();
		}
		return true;
	}

	/** Jobs that note that they ran. */
	private function doNotes( $count, $usleep ) {
		$this->group()->push( array_map( static function ( $n ) use ( $usleep ) {
			return new JobSpecification( 'note', [ 'n' => $n, 'usleep' => (int)$usleep ], [ 'removeDuplicates' => true ] );
		}, range( 1, $count ) ) );
		return $this->doCounts( 'note' );
	}

	/** A job with a parameter. */
	private function doNote( $name, $value ) {
		$this->group()->push( new JobSpecification( 'note', [ 'n' => 1, $name => $value ] ) );
		return $this->doCounts( 'note' );
	}

	/** Jobs of two types at once, one of them too large; and a push that cannot be atomic. */
	private function doPushes() {
		$large = new JobSpecification( 'note', [ 'n' => bin2hex( random_bytes( 80000 ) ) ] );
		$small = new JobSpecification( 'note', [ 'n' => 'small' ] );
		// The body is compressed.
		$long = new JobSpecification( 'note', [ 'n' => str_repeat( 'x', 70000 ) ] );
		$other = new JobSpecification( 'null', [ 'lives' => 1 ] );
		$this->group()->push( [ $large, $small, $long, $other ] );
		$pushed = [ $this->doCounts( 'note' ), $this->doCounts( 'null' ) ];
		$queue = $this->group()->get( 'note' );
		$popped = [ strlen( $queue->pop()->getParams()['n'] ), strlen( $queue->pop()->getParams()['n'] ) ];
		$refused = '';
		try {
			$queue->push( [ $large, $small ], 1 /* QOS_ATOMIC */ );
		} catch ( JobQueueError $e ) {
			$refused = $e->getMessage();
		}
		$counts = $this->doCounts( 'note' );
		$queue->delete();
		$this->group()->get( 'null' )->delete();
		return [ 'pushed' => $pushed, 'popped' => $popped, 'refused' => $refused, 'counts' => $counts,
			'deleted' => $this->doCounts( 'note' ) ];
	}

	/** Pushes before, in and after a drain, which the test announces by a file. */
	private function doDrained( $file ) {
		$answer = [];
		foreach ( [ 'before', 'in', 'after' ] as $when ) {
			while ( !file_exists( getenv( 'FARM' ) . "/$file-$when" ) ) {
				usleep( 10000 );
			}
			$this->group()->push( [
				new JobSpecification( 'note', [ 'n' => "$when 1" ] ), new JobSpecification( 'note', [ 'n' => "$when 2" ] )
			] );
			$answer[$when] = $this->doCounts( 'note' );
			file_put_contents( getenv( 'FARM' ) . "/$file-$when-done", '' );
		}
		return $answer;
	}

	private function doFailing( $n ) {
		$this->group()->push( new JobSpecification( 'note', [ 'n' => $n, 'fails' => true ] ) );
		return $this->doCounts( 'note' );
	}

	/** Jobs with every option of a job. */
	private function doOdd() {
		$queue = $this->group()->get( 'note' );
		$queue->push( [
			new JobSpecification( 'note', [ 'n' => "a\\n\r\nb", 'list' => [ 1, 2.0, null, [ 'x' => true ] ] ] ),
			new JobSpecification( 'note', [ 'n' => 'later', 'jobReleaseTimestamp' => time() + 1000 ] ),
			new JobSpecification( 'note', [ 'n' => "\xff\x00" ] ),
		], 1 /* QOS_ATOMIC */ );
		$before = $this->doCounts( 'note' );
		$refused = [];
		try {
			$queue->push( [ new NoteJob( [ 'n' => 1 ] ), new NoteJob( [ 'n' => new DateTime() ] ) ] );
		} catch ( JobQueueError $e ) {
			$refused[] = $e->getMessage();
		}
		$names = static function ( $jobs ) {
			return array_map( static function ( $job ) {
				return bin2hex( $job->getParams()['n'] );
			}, iterator_to_array( $jobs, false ) );
		};
		$listed = [ $names( $queue->getAllQueuedJobs() ), $names( $queue->getAllDelayedJobs() ) ];
		$first = $queue->pop();
		$second = $queue->pop();
		$popped = $names( new ArrayIterator( [ $first, $second ] ) );
		$list = json_encode( $first->getParams()['list'], JSON_PRESERVE_ZERO_FRACTION );
		$acquired = $names( $queue->getAllAcquiredJobs() );
		$queue->ack( $first );
		$after = $this->doCounts( 'note' );
		$queue->ack( $second );
		$siblings = $queue->getSiblingQueuesWithJobs( [ 'note', 'refreshLinks' ] );
		$queue->delete();
		return [ 'before' => $before, 'refused' => $refused, 'listed' => $listed, 'popped' => $popped, 'list' => $list, 'acquired' => $acquired,
			'after' => $after, 'siblings' => $siblings, 'deleted' => $this->doCounts( 'note' ) ];
	}

	/** Errors of a daemon that is down, or takes no jobs. */
	private function doAway() {
		$queue = $this->group()->get( 'note' );
		$started = microtime( true );
		$answer = [ 'reason' => $queue->getReadOnlyReason() ];
		foreach ( [ 'push', 'pop', 'getSize' ] as $request ) {
			try {
				$queue->$request( new JobSpecification( 'note', [ 'n' => 1 ] ) );
				$answer[$request] = 'went well';
			} catch ( JobQueueError $e ) {
				// Its namespace differs between versions.
				$answer[$request] = substr( strrchr( '\\' . get_class( $e ), '\\' ), 1 );
			}
		}
		return $answer + [ 'seconds' => microtime( true ) - $started ];
	}

	/** Pushes all waiting jobs again. */
	private function doAgain( $type ) {
		$queue = $this->group()->get( $type );
		$queue->push( iterator_to_array( $queue->getAllQueuedJobs(), false ) );
		return $this->doCounts( $type );
	}

	/** Link updates of the pages that use the template. */
	private function doLinks( $count ) {
		$this->group()->push( array_map( static function ( $n ) {
			$page = [ 'namespace' => 0, 'title' => 'Page_' . $n % 200 ];
			return new JobSpecification( 'refreshLinks', $page + [ 'n' => $n ] );
		}, range( 1, $count ) ) );
		return $this->doCounts( 'refreshLinks' );
	}

	private function doMail( $to ) {
		$this->group()->push( new JobSpecification( 'sendMail', [ 'to' => $to ] ) );
		return true;
	}

	private function doDelete( $type ) {
		$this->group()->get( $type )->delete();
		return $this->doCounts( $type );
	}

	private function doCounts( $type ) {
		$queue = $this->group()->get( $type );
		$queue->flushCaches();
		return [ $queue->getSize(), $queue->getAcquiredCount(), $queue->getDelayedCount(), $queue->getAbandonedCount() ];
	}

	/** Measures the queue: pushes one by one and in batches, pops with their acks, and counts with many jobs. */
	private function doBench( $most, $seconds ) {
		$queue = $this->group()->get( 'note' );
		$n = 0;
		$spec = static function () use ( &$n ) {
			return new JobSpecification( 'note', [ 'n' => ++$n, 'pages' => [ $n => [ 0, "Some page $n" ] ] ] );
		};
		$answer = [];
		$answer['pushes'] = $this->rate( $seconds, static function () use ( $queue, $spec ) {
			$queue->push( $spec() );
			return 1;
		} );
		$answer['pops'] = $this->rate( $seconds, static function () use ( $queue ) {
			$job = $queue->pop();
			if ( !$job ) {
				return 0;
			}
			$queue->ack( $job );
			return 1;
		} );
		$answer['pushes of batches'] = $this->rate( $seconds, static function () use ( $queue, $spec ) {
			$queue->push( array_map( $spec, range( 1, self::BATCH ) ) );
			return self::BATCH;
		} );
		$deadline = microtime( true ) + 240;
		$queue->flushCaches();
		$has = $queue->getSize();
		while ( $has < $most && microtime( true ) < $deadline ) {
			$queue->push( array_map( $spec, range( 1, self::BATCH ) ) );
			$has += self::BATCH;
		}
		foreach ( [ 'getSize', 'getAcquiredCount' ] as $count ) {
			$times = [];
			for ( $i = 0; $i < 5; $i++ ) {
				$queue->flushCaches();
				$started = microtime( true );
				$answer['jobs'] = $count === 'getSize' ? $queue->getSize() : $answer['jobs'];
				$queue->$count();
				$times[] = 1000 * ( microtime( true ) - $started ) / ( $count === 'getSize' ? 2 : 1 );
			}
			sort( $times );
			$answer["$count ms"] = round( $times[2], 3 );
		}
		$answer['pops of many'] = $this->rate( $seconds, static function () use ( $queue ) {
			$queue->ack( $queue->pop() );
			return 1;
		} );
		return $answer;
	}

	/** Returns the number per second. */
	private function rate( $seconds, callable $once ): int {
		$started = microtime( true );
		$count = 0;
		do {
			$done = $once();
			$count += $done;
			$took = microtime( true ) - $started;
		} while ( $done && $took < $seconds );
		return (int)( $count / $took );
	}
}

$maintClass = Drive::class;
require_once RUN_MAINTENANCE_IF_MAIN;
