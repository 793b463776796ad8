<?php
/**
 * Runs the jobs passed on by `poolcounter jobs run --batch`.
 *
 * @file
 * @license MIT OR Apache-2.0
 */

use MediaWiki\MediaWikiServices;
use PoolCounterJobs\DuplicateJob;
use PoolCounterJobs\JobQueueError;
use PoolCounterJobs\JobQueueReadOnlyError;
use PoolCounterJobs\RunnableJob;
use PoolCounterJobs\WikiMap;
use Wikimedia\Rdbms\DBReadOnlyError;

$IP = getenv( 'MW_INSTALL_PATH' ) ?: dirname( __DIR__, 3 );
require_once "$IP/maintenance/Maintenance.php";

/**
 * Reads jobs, one per line, and answers each with a line on descriptor 3: done, fail or bury with the reason, or release for a job
 * to be run later. The standard output is free for the output of jobs.
 */
class RunPoolCounterJobs extends Maintenance {
	/** Share of the memory limit in use from which no further job is started. */
	private const FULL = 0.8;
	/** Lag in seconds from which no job is started, the same as in MediaWiki's own runner. */
	private const LAG = 3;
	/** Seconds between two counts of superseded jobs. */
	private const COUNT = 10;
	/** Seconds of the first pause of a wiki that is read-only. */
	private const REST = 30;

	/** Error message without --batch, where exit status 0 would mean that the job is done. */
	private const NO_BATCH = 'Jobs come one a line, and are answered on descriptor 3: run it with jobs run --batch';

	/** @var string|null Answer to jobs that are not started, because this process ends */
	private $ending;
	/** @var JobQueuePoolCounter */
	private $queue;
	/** @var float Time of the last check of the lag */
	private $lagAt = 0.0;
	/** @var float Time of the last count of superseded jobs */
	private $countAt = 0.0;

	public function __construct() {
		parent::__construct();
		$this->addDescription( 'Run the jobs that "poolcounter jobs run --batch" writes to the standard input' );
		$this->requireExtension( 'PoolCounterJobs' );
	}

	public function memoryLimit() {
		// Without a limit it could not know when to leave jobs to the next process. --memory-limit overrides it.
		return '512M';
	}

	public function execute() {
		require_once __DIR__ . '/../src/names.php';
		$answers = self::answers();
		if ( getenv( 'JOB_ID' ) !== false || !$answers ) {
			// A single job: its body would be read as lines, and the exit of this process as the result of the job.
			$this->fatalError( self::NO_BATCH );
		}
		$this->checkWiki();
		$this->findQueue();
		if ( function_exists( 'pcntl_async_signals' ) ) {
			pcntl_async_signals( true );
			pcntl_signal( SIGTERM, function () {
				$this->ending = 'release';
			} );
		}
		while ( true ) {
			$line = fgets( STDIN );
			$this->countDropped( $line === false );
			if ( $line === false ) {
				return;
			}
			[ $id, $body ] = explode( ' ', rtrim( $line, "\n" ), 2 ) + [ '', '' ];
			if ( substr( $line, -1 ) !== "\n" || !ctype_digit( $id ) ) {
				$this->fatalError( self::NO_BATCH );
			}
			$this->ending = $this->ending ?? $this->obstacle();
			$answer = $this->ending ?? $this->runBody( self::unescaped( $body ) );
			// phpcs:ignore Generic.PHP.NoSilencedErrors
			if ( !@fwrite( $answers, "$id $answer\n" ) || !fflush( $answers ) ) {
				// Without the runner no result is reported, and other runners get the jobs.
				$this->fatalError( 'The runner has gone' );
			}
		}
	}

	/**
	 * Returns the pipe for answers, or null without one.
	 *
	 * @return resource|null
	 */
	private static function answers() {
		// phpcs:ignore Generic.PHP.NoSilencedErrors
		$pipe = @fopen( 'php://fd/3', 'w' );
		// Descriptor 3 may be a file that PHP itself has opened.
		return $pipe && ( fstat( $pipe )['mode'] & 0170000 ) === 0010000 ? $pipe : null;
	}

	/** Fails for jobs of another wiki, which would do harm here. */
	private function checkWiki(): void {
		$wiki = getenv( 'JOB_WIKI' );
		$own = WikiMap::getCurrentWikiId();
		if ( $wiki !== false && $wiki !== $own ) {
			$this->fatalError( "These are jobs of $wiki, and this is $own: is --wiki={wiki} missing?" );
		}
	}

	/** Finds the queue of these jobs, and sends its retry rule to the daemons; ignores a failure of that. */
	private function findQueue(): void {
		$type = rawurldecode( strtr( getenv( 'JOB_TYPE' ) ?: 'null', '+', '%' ) );
		$queue = MediaWikiServices::getInstance()->getJobQueueGroup()->get( $type );
		if ( !$queue instanceof JobQueuePoolCounter ) {
			$this->fatalError( "The jobs of type $type are in another queue here: look at \$wgJobTypeConf" );
		}
		$this->queue = $queue;
		try {
			$queue->announce();
		} catch ( JobQueueError $e ) {
			$this->error( $e->getMessage() );
		}
	}

	/** Counts the superseded jobs that the daemons have dropped, now and then and at the end; ignores a failure of that. */
	private function countDropped( bool $isEnd ): void {
		if ( $isEnd || microtime( true ) - $this->countAt > self::COUNT ) {
			$this->countAt = microtime( true );
			try {
				$this->queue->noteDropped();
			} catch ( JobQueueError $e ) {
				$this->error( $e->getMessage() );
			}
		}
	}

	/** Returns the answer to a job that must not be started now, or null if it can be. */
	private function obstacle(): ?string {
		$services = MediaWikiServices::getInstance();
		if ( $services->getReadOnlyMode()->isReadOnly() ) {
			return 'release ' . self::REST;
		}
		if ( microtime( true ) - $this->lagAt > 1 ) {
			$this->lagAt = microtime( true );
			if ( $services->getDBLoadBalancer()->getMaxLag()[1] >= self::LAG ) {
				return 'release ' . self::REST;
			}
		}
		return $this->isFull() ? 'release' : null;
	}

	/** Runs a job, and returns the answer. */
	private function runBody( string $body ): string {
		try {
			$fields = $this->queue->decode( $body );
		} catch ( JobQueueError $e ) {
			// Another attempt would fail the same way.
			return 'bury ' . self::escaped( $e->getMessage() );
		}
		try {
			$services = MediaWikiServices::getInstance();
			$job = $this->queue->jobFrom( $fields );
			$info = $services->getJobRunner()->executeJob( $job );
			$services->getDBLoadBalancerFactory()->waitForReplication( [ 'timeout' => 3 ] );
		} catch ( Throwable $e ) {
			return self::isReadOnly( [ get_class( $e ) ] ) ? 'release ' . self::REST :
				'fail ' . self::escaped( get_class( $e ) . ': ' . $e->getMessage() );
		}
		if ( $info['status'] === false && self::isReadOnly( $info['caught'] ) ) {
			return 'release ' . self::REST;
		}
		if ( $info['status'] !== false || !$job->allowRetries() ) {
			$rest = self::throttle( $job );
			return $rest > 0 ? "done $rest" : 'done';
		}
		return 'fail ' . self::escaped( (string)$info['error'] ?: 'it has failed' );
	}

	/**
	 * Returns true for errors of a read-only database or queue, which are not the job's fault.
	 *
	 * @param string[] $caught classes
	 */
	private static function isReadOnly( array $caught ): bool {
		foreach ( $caught as $class ) {
			if ( is_a( $class, DBReadOnlyError::class, true ) || is_a( $class, JobQueueReadOnlyError::class, true ) ) {
				return true;
			}
		}
		return false;
	}

	/** Returns the pause of the type after a job in seconds, by $wgJobBackoffThrottling; fractions are rounded at random. */
	private static function throttle( RunnableJob $job ): int {
		$rate = MediaWikiServices::getInstance()->getMainConfig()->get( 'JobBackoffThrottling' )[$job->getType()] ?? 0;
		if ( $rate <= 0 || $job instanceof DuplicateJob ) {
			return 0;
		}
		$seconds = max( 0, $job->workItemCount() ) / $rate;
		return (int)$seconds + ( mt_rand() / mt_getrandmax() < fmod( $seconds, 1 ) ? 1 : 0 );
	}

	private function isFull(): bool {
		$limit = wfShorthandToInteger( (string)ini_get( 'memory_limit' ) );
		return $limit > 0 && memory_get_usage() > self::FULL * $limit;
	}

	private static function escaped( string $text ): string {
		return strtr( substr( $text, 0, 4000 ), [ '\\' => '\\\\', "\n" => '\\n', "\r" => '\\r' ] );
	}

	private static function unescaped( string $line ): string {
		return strtr( $line, [ '\\\\' => '\\', '\\n' => "\n", '\\r' => "\r" ] );
	}
}

$maintClass = RunPoolCounterJobs::class;
require_once RUN_MAINTENANCE_IF_MAIN;
