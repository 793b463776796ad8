<?php
/**
 * Runs the jobs that `poolcounter jobs run --batch` hands over.
 *
 * @file
 * @license MIT OR Apache-2.0
 */

use MediaWiki\MediaWikiServices;

$IP = getenv( 'MW_INSTALL_PATH' ) ?: dirname( __DIR__, 3 );
require_once "$IP/maintenance/Maintenance.php";

/**
 * Reads jobs, one a line, and answers each with a line: done, fail and why, or release if it was not begun.
 */
class RunPoolCounterJobs extends Maintenance {
	/** With so much of the memory limit in use no further job is begun. */
	private const FULL = 0.8;

	/** Status 0 would mean that the job is done. */
	private const NO_BATCH = 'These are no jobs, one a line: run it with jobs run --batch';

	/** @var bool */
	private $isEnding = false;

	public function __construct() {
		parent::__construct();
		$this->addDescription( 'Run the jobs that "poolcounter jobs run --batch" writes to the standard input' );
		$this->requireExtension( 'PoolCounterJobs' );
	}

	public function memoryLimit() {
		// Without a limit it could not tell when to leave jobs to the next process. --memory-limit overrides it.
		return '512M';
	}

	public function execute() {
		if ( getenv( 'JOB_ID' ) !== false ) {
			// A single job: its body would be taken for lines, and the end of this process for the job's.
			$this->fatalError( self::NO_BATCH );
		}
		$this->checkWiki();
		$this->announce();
		if ( function_exists( 'pcntl_async_signals' ) ) {
			pcntl_async_signals( true );
			pcntl_signal( SIGTERM, function () {
				$this->isEnding = true;
			} );
		}
		while ( true ) {
			$line = fgets( STDIN );
			if ( $line === false ) {
				return;
			}
			[ $id, $body ] = explode( ' ', rtrim( $line, "\n" ), 2 ) + [ '', '' ];
			if ( substr( $line, -1 ) !== "\n" || !ctype_digit( $id ) ) {
				$this->fatalError( self::NO_BATCH );
			}
			if ( !$this->isEnding && $this->isFull() ) {
				$this->isEnding = true;
			}
			$answer = $this->isEnding ? 'release' : $this->runBody( self::unescaped( $body ) );
			// Without a runner nobody knows what is done, and others are given the rest.
			// phpcs:ignore Generic.PHP.NoSilencedErrors
			if ( !@fwrite( STDOUT, "$id $answer\n" ) || !fflush( STDOUT ) ) {
				return;
			}
		}
	}

	/** Jobs of another wiki would do harm here. */
	private function checkWiki(): void {
		$wiki = getenv( 'JOB_WIKI' );
		$own = JobQueuePoolCounter::partOfTube( MediaWikiServices::getInstance()->getDBLoadBalancer()->getLocalDomainID() );
		if ( $wiki !== false && $wiki !== $own ) {
			$this->fatalError( "These are jobs of $wiki, and this is $own: is --wiki={wiki} missing?" );
		}
	}

	/** Says how often a job is tried; without that the jobs run as well. */
	private function announce(): void {
		$queue = MediaWikiServices::getInstance()->getJobQueueGroup()->get( 'null' );
		try {
			if ( $queue instanceof JobQueuePoolCounter ) {
				$queue->announce();
			}
		} catch ( JobQueueError $e ) {
			$this->error( $e->getMessage() );
		}
	}

	/** Runs a job, and returns the answer. */
	private function runBody( string $body ): string {
		try {
			$fields = JobQueuePoolCounter::decode( $body );
			$job = Job::factory( $fields['type'], $fields['params'] );
			$job->setMetadata( 'timestamp', $fields['queued'] );
			$services = MediaWikiServices::getInstance();
			$info = $services->getJobRunner()->executeJob( $job );
			$services->getDBLoadBalancerFactory()->waitForReplication( [ 'timeout' => 3 ] );
		} catch ( Throwable $e ) {
			return 'fail ' . self::escaped( get_class( $e ) . ': ' . $e->getMessage() );
		}
		if ( $info['status'] !== false || !$job->allowRetries() ) {
			return 'done';
		}
		return 'fail ' . self::escaped( (string)$info['error'] ?: 'it has failed' );
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
