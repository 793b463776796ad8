<?php
/**
 * @file
 * @license MIT OR Apache-2.0
 */

use PoolCounterJobs\IJobSpecification;
use PoolCounterJobs\JobQueue;
use PoolCounterJobs\JobQueueConnectionError;
use PoolCounterJobs\JobQueueError;
use PoolCounterJobs\JobQueueReadOnlyError;
use PoolCounterJobs\MWExceptionHandler;
use PoolCounterJobs\RunnableJob;
use PoolCounterJobs\WikiMap;

require_once __DIR__ . '/names.php';

/**
 * Job queue in the jobs service of a poolcounter daemon.
 *
 * A queue is the tube `wiki/type`. A popped job is reserved on the connection of this process: other processes get it when the
 * connection ends, or when the claim times out. After `maxTries` attempts it is buried, which MediaWiki calls abandoned.
 *
 * With several servers, each wiki has its own, by MediaWiki's order of PoolCounter servers; jobs go to the next server while that
 * is down or drains, and all reachable servers are asked for jobs and counts.
 */
class JobQueuePoolCounter extends JobQueue {
	/** Limits of one put-many: jobs, and bytes of their bodies. */
	private const MANY = 1000;
	private const MANY_BYTES = 16 << 20;
	/** Number of jobs that an iterator reads at a time. */
	private const PAGE = 100;
	/** Default priority, and lower numbers for mails, which come first. */
	private const PRIORITY = 65536;
	private const PRIORITIES = [ 'sendMail' => 1000, 'enotifNotify' => 1000, 'EchoNotificationJob' => 1000 ];
	/** Longest claim in seconds; in effect until the connection ends. */
	private const FOREVER = 4294967295;
	/** Body length in bytes from which bodies are compressed, and the first bytes of a compressed one. */
	private const COMPRESS_FROM = 4096;
	private const COMPRESSED = "\x1f\x8b";
	private const NOT_TAKEN = 'it takes no jobs at the moment.';
	/** Longest body after decompression, in bytes. */
	private const LONGEST_BODY = 512 << 20;

	/** @var string ID of the wiki */
	private $wiki;
	/** @var string Secret that signs jobs; if empty, they are not signed */
	private $secret;

	/** @var string[] */
	private $servers;
	/** @var float */
	private $connectTimeout;
	/** @var float */
	private $timeout;
	/** @var int[] By type */
	private $priorities;
	/** @var array|false Seconds until the second attempt, factor of each further delay, and longest delay in seconds */
	private $retry;

	/**
	 * @param array $params those of JobQueue, and
	 *  - servers : one or several of host, host:port, [IPv6]:port and unix:path
	 *  - connectTimeout : seconds [default: 0.5]
	 *  - timeout : seconds until the reply to a request [default: 5]
	 *  - priorities : (type => number); lower ones come first [default: mails come first]
	 *  - retry : [ first, factor, max ], or false to leave it to the daemon's operator [default: [ 30, 4, 3600 ]]
	 *  - secret : signs jobs [default: $wgJobQueuePoolCounterSecret]
	 */
	public function __construct( array $params ) {
		parent::__construct( $params );
		$servers = (array)( $params['servers'] ?? $params['server'] ?? [ 'localhost' ] );
		if ( $servers === [] ) {
			throw new JobQueueError( __CLASS__ . ' needs servers.' );
		}
		$this->connectTimeout = (float)( $params['connectTimeout'] ?? 0.5 );
		$this->timeout = (float)( $params['timeout'] ?? 5.0 );
		$this->priorities = ( $params['priorities'] ?? [] ) + self::PRIORITIES;
		$this->retry = $params['retry'] ?? [ 30, 4, 3600 ];
		$this->secret = (string)( $params['secret'] ?? $GLOBALS['wgJobQueuePoolCounterSecret'] ?? '' );
		$this->wiki = WikiMap::getWikiIdFromDbDomain( $this->domain );
		$this->servers = self::placed( array_values( $servers ), $this->wiki );
	}

	/**
	 * Returns servers in the order in which they are tried for a key: by the hash of server and key.
	 *
	 * @param string[] $servers
	 * @return string[]
	 */
	private static function placed( array $servers, string $key ): array {
		$hashes = [];
		foreach ( $servers as $server ) {
			$hashes[$server] = md5( $server . $key );
		}
		asort( $hashes, SORT_STRING );
		return array_keys( $hashes );
	}

	/**
	 * Returns a part of a tube's name: each byte that is not allowed there becomes + and two hexadecimal digits.
	 */
	public static function partOfTube( string $name ): string {
		return preg_replace_callback( '/[^A-Za-z0-9;.$_()-]|^-/', static function ( $found ) {
			return '+' . strtoupper( implode( '+', str_split( bin2hex( $found[0] ), 2 ) ) );
		}, $name );
	}

	private function tube( ?string $type = null ): string {
		return self::partOfTube( $this->wiki ) . '/' . self::partOfTube( $type ?? $this->type );
	}

	/** The only order is by time, which also serves as "random". */
	protected function supportedOrders() {
		return [ 'fifo', 'timestamp', 'random' ];
	}

	protected function optimalOrder() {
		return 'fifo';
	}

	protected function supportsDelayedJobs() {
		return true;
	}

	/**
	 * Returns the reason for which nothing can be pushed: the configuration, no reachable daemon, or none that accepts jobs.
	 */
	public function getReadOnlyReason() {
		if ( $this->readOnlyReason !== false ) {
			return $this->readOnlyReason;
		}
		try {
			foreach ( $this->takers() as $_ ) {
				return false;
			}
			return self::NOT_TAKEN;
		} catch ( JobQueueConnectionError $e ) {
			return $e->getMessage();
		}
	}

	private function connection( string $server ): PoolCounterJobsConnection {
		return PoolCounterJobsConnection::to( $server, $this->connectTimeout, $this->timeout );
	}

	/**
	 * Yields the connections to the reachable servers, at least one, by server.
	 */
	private function connections(): Generator {
		$error = null;
		$isThere = false;
		foreach ( $this->servers as $server ) {
			try {
				$connection = $this->connection( $server );
			} catch ( JobQueueConnectionError $e ) {
				$error = $e;
				continue;
			}
			$isThere = true;
			yield $server => $connection;
		}
		if ( !$isThere ) {
			throw $error;
		}
	}

	/**
	 * Yields the connections to the reachable servers that accept jobs; possibly none.
	 */
	private function takers(): Generator {
		foreach ( $this->connections() as $server => $connection ) {
			try {
				$isDraining = $connection->isDraining();
			} catch ( JobQueueConnectionError $e ) {
				continue;
			}
			if ( !$isDraining ) {
				yield $server => $connection;
			}
		}
	}

	protected function doBatchPush( array $jobs, $flags ) {
		$bodies = array_map( [ $this, 'encode' ], $jobs );
		foreach ( $this->takers() as $connection ) {
			$fitting = array_filter( $bodies, static function ( $body ) use ( $connection ) {
				return strlen( $body ) <= $connection->maxBytes;
			} );
			$large = array_diff_key( $bodies, $fitting );
			$batches = $this->batches( $jobs, $fitting );
			if ( $flags & self::QOS_ATOMIC ) {
				$this->refuseParts( $large, $connection->maxBytes, count( $batches ) );
			}
			$bodies = [];
			foreach ( $batches as $batch ) {
				foreach ( $this->count( $connection->putMany( array_values( $batch ) ) ) as $position ) {
					// The job goes to the next server.
					$index = array_keys( $batch )[$position];
					$bodies[$index] = $fitting[$index];
				}
			}
			if ( $large !== [] ) {
				$this->incrStats( 'oversized_inserts', $this->type, count( $large ) );
				// An exception would prevent the push of the other types of this request.
				MWExceptionHandler::logException( $this->tooLarge( $large, $connection->maxBytes ) );
			}
			if ( $bodies === [] ) {
				return;
			}
			$connection->noteDraining();
		}
		throw new JobQueueReadOnlyError( 'Job queue is read-only: ' . self::NOT_TAKEN );
	}

	/**
	 * Fails if the jobs cannot be pushed atomically.
	 *
	 * @param string[] $large bodies
	 * @param int $maxBytes
	 * @param int $batches
	 */
	private function refuseParts( array $large, int $maxBytes, int $batches ): void {
		if ( $large !== [] ) {
			throw $this->tooLarge( $large, $maxBytes );
		}
		if ( $batches > 1 ) {
			throw new JobQueueError( 'These are more jobs than can be pushed all or none.' );
		}
	}

	private function tooLarge( array $large, int $maxBytes ): JobQueueError {
		return new JobQueueError( count( $large ) . " {$this->type} job(s) are not pushed: the largest has " .
			max( array_map( 'strlen', $large ) ) . " bytes, and the daemon takes $maxBytes (--jobs-max-size)." );
	}

	/**
	 * Returns puts by the index of their jobs, in batches that can be sent at once.
	 *
	 * @param IJobSpecification[] $jobs
	 * @param string[] $bodies
	 * @return array[]
	 */
	private function batches( array $jobs, array $bodies ): array {
		$batches = [];
		$bytes = self::MANY_BYTES;
		foreach ( $bodies as $index => $body ) {
			$bytes += strlen( $body );
			if ( $bytes > self::MANY_BYTES || count( end( $batches ) ) === self::MANY ) {
				$batches[] = [];
				$bytes = strlen( $body );
			}
			$batches[count( $batches ) - 1][$index] = $this->put( $jobs[$index], $body );
		}
		return $batches;
	}

	/**
	 * Counts the outcomes of pushed jobs, and returns the positions of those that go to the next server, because this one drains or
	 * may no longer own the jobs. In the latter case it may still have stored them.
	 *
	 * @param string[] $outcomes
	 * @return int[]
	 */
	private function count( array $outcomes ): array {
		$words = array_map( static function ( $line ) {
			return explode( ' ', $line )[0];
		}, $outcomes );
		$counts = array_count_values( $words );
		$names = [ 'INSERTED' => 'inserts', 'DUPLICATE' => 'dupe_inserts', 'SUPERSEDED' => 'superseded_inserts' ];
		foreach ( array_intersect_key( $counts, $names ) as $word => $count ) {
			$this->incrStats( $names[$word], $this->type, $count );
		}
		if ( array_keys( $counts ) === [ 'INTERNAL_ERROR' ] ) {
			return array_keys( $outcomes );
		}
		$refused = array_diff_key( $counts, $names, [ 'DRAINING' => 0 ] );
		if ( $refused !== [] ) {
			throw new JobQueueError( 'The job queue refuses ' . $this->type . ' jobs: ' . key( $refused ) );
		}
		return array_keys( $words, 'DRAINING' );
	}

	/** Returns a put-job line with the body. */
	private function put( IJobSpecification $job, string $body ): string {
		$pri = $this->priorities[$job->getType()] ?? self::PRIORITY;
		$delay = max( 0, (int)$job->getReleaseTimestamp() - time() );
		$ttr = $this->claimTTL > 0 ? $this->claimTTL : self::FOREVER;
		$line = "put-job $pri $delay $ttr " . strlen( $body ) . ' tube=' . $this->tube();
		if ( $job->ignoreDuplicates() ) {
			$line .= ' key=' . sha1( serialize( $job->getDeduplicationInfo() ) );
		}
		if ( $job->hasRootJobParams() ) {
			$line .= ' ' . vsprintf( 'root=%s root-ts=%s', $this->root( $job ) );
		}
		return "$line\r\n$body\r\n";
	}

	/**
	 * Returns the signature and the timestamp of a job's root.
	 */
	private function root( IJobSpecification $job ): array {
		$params = $job->getRootJobParams();
		$signature = (string)$params['rootJobSignature'];
		// The signature is a hash, unless an extension sets something else.
		$isHash = (bool)preg_match( '/^[\x21-\x7e]{1,200}$/', $signature );
		return [ $isHash ? $signature : sha1( $signature ), wfTimestamp( TS_UNIX, $params['rootJobTimestamp'] ) ];
	}

	private function encode( IJobSpecification $job ): string {
		$fields = [ 'type' => $job->getType(), 'params' => $job->getParams(), 'queued' => time() ];
		array_walk_recursive( $fields, static function ( $value, $name ) use ( $job ) {
			if ( $value !== null && !is_scalar( $value ) ) {
				throw new JobQueueError( "The parameter $name of a {$job->getType()} job has objects." );
			}
		} );
		$flags = JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION;
		$body = json_encode( $fields, $flags );
		if ( $body === false ) {
			// The parameters contain strings that are not valid text.
			$fields['serialized'] = base64_encode( serialize( $fields['params'] ) );
			unset( $fields['params'] );
			$body = json_encode( $fields, $flags );
		}
		if ( $this->secret !== '' ) {
			$body = '{"hmac":"' . $this->signatureOf( $body ) . '",' . substr( $body, 1 );
		}
		if ( strlen( $body ) > self::COMPRESS_FROM && function_exists( 'gzencode' ) ) {
			$compressed = gzencode( $body );
			return strlen( $compressed ) < strlen( $body ) ? $compressed : $body;
		}
		return $body;
	}

	/** Returns the signature over the wiki and the body without signature. */
	private function signatureOf( string $body ): string {
		return hash_hmac( 'sha256', "{$this->wiki}\n$body", $this->secret );
	}

	/**
	 * Returns the fields of a job's body: type, params and queued.
	 *
	 * @throws JobQueueError for a body that this class has not written or not signed
	 */
	public function decode( string $body ): array {
		if ( substr( $body, 0, 2 ) === self::COMPRESSED ) {
			if ( !function_exists( 'gzdecode' ) ) {
				throw new JobQueueError( 'This job is compressed, and PHP has no zlib here.' );
			}
			// Errors are reported below.
			// phpcs:ignore Generic.PHP.NoSilencedErrors
			$body = (string)@gzdecode( $body, self::LONGEST_BODY );
		}
		if ( $this->secret !== '' ) {
			$isSigned = preg_match( '/^\{"hmac":"([0-9a-f]{64})",/', $body, $found ) &&
				hash_equals( $this->signatureOf( '{' . substr( $body, strlen( $found[0] ) ) ), $found[1] );
			if ( !$isSigned ) {
				throw new JobQueueError( 'This job is not run: it is not signed with the secret of ' . $this->wiki . '.' );
			}
		}
		$fields = json_decode( $body, true );
		if ( is_array( $fields ) && isset( $fields['serialized'] ) ) {
			// A client that can reach the daemon's port must not create objects here.
			$options = [ 'allowed_classes' => false ];
			$fields['params'] = unserialize( base64_decode( $fields['serialized'] ), $options );
		}
		if ( !isset( $fields['type'] ) || !is_array( $fields['params'] ?? null ) ) {
			throw new JobQueueError( 'This is no job of MediaWiki: ' . substr( $body, 0, 100 ) );
		}
		return $fields + [ 'queued' => null ];
	}

	private function jobOf( string $server, int $id, string $body ): RunnableJob {
		$job = $this->jobFrom( $this->decode( $body ) );
		$job->setMetadata( 'id', $id );
		$job->setMetadata( 'server', $server );
		return $job;
	}

	/**
	 * Returns the job with these fields, which may be claimed by another process.
	 */
	public function jobFrom( array $fields ): RunnableJob {
		$job = $this->factoryJob( $fields['type'], $fields['params'] );
		$job->setMetadata( 'timestamp', $fields['queued'] );
		return $job;
	}

	protected function doPop() {
		foreach ( $this->connections() as $server => $connection ) {
			$dropped = 0;
			$found = $connection->reserve( $this->tube(), $dropped, $this->once() );
			$this->countDropped( $dropped );
			if ( !$found ) {
				continue;
			}
			try {
				$job = $this->jobOf( $server, ...$found );
			} catch ( Exception $e ) {
				$text = substr( $e->getMessage(), 0, 4096 );
				// Another attempt would fail the same way.
				$line = "fail {$found[0]} " . self::PRIORITY . ' 0 ' . strlen( $text ) . ' bury';
				$connection->ask( "$line\r\n$text\r\n" );
				$connection->forget( $found[0] );
				throw $e;
			}
			$this->incrStats( 'pops', $this->type );
			return $job;
		}
		return false;
	}

	/** Counts superseded jobs that the daemon has dropped, which MediaWiki's own queues pop as duplicates. */
	private function countDropped( int $dropped ): void {
		if ( $dropped > 0 ) {
			$this->incrStats( 'dupe_pops', $this->type, $dropped );
		}
	}

	/**
	 * Counts the superseded jobs that the daemons have dropped, for a runner that does not pop jobs.
	 */
	public function noteDropped(): void {
		foreach ( $this->connections() as $connection ) {
			$this->countDropped( $connection->dropped( $this->tube() ) );
		}
	}

	/**
	 * Returns the requests that a connection sends once before it pops jobs.
	 *
	 * @return string[]
	 */
	private function once(): array {
		$name = preg_replace( '/[^\x21-\x7e]/', '', substr( (string)gethostname(), 0, 40 ) );
		return array_merge( [ "identify mediawiki:$name:" . getmypid() . "\r\n" ], $this->settings() );
	}

	/**
	 * Returns the requests that set the retry rule of this wiki's jobs.
	 *
	 * @return string[]
	 */
	private function settings(): array {
		if ( $this->retry === false ) {
			return [];
		}
		$wiki = self::partOfTube( $this->wiki );
		return [ "retry $wiki/* {$this->maxTries} " . implode( ' ', $this->retry ) . "\r\n" ];
	}

	/**
	 * Sends the retry rule of this wiki's jobs to the daemons, for a runner that does not pop jobs.
	 */
	public function announce(): void {
		foreach ( $this->connections() as $connection ) {
			$connection->askMany( implode( '', $this->settings() ), count( $this->settings() ) );
		}
	}

	protected function doAck( RunnableJob $job ) {
		$id = $job->getMetadata( 'id' );
		$server = $job->getMetadata( 'server' );
		if ( $id === null || $server === null ) {
			throw new JobQueueError( "A '{$job->getType()}' job is acknowledged that was not popped." );
		}
		// NOT_FOUND: the claim has timed out, and another process has the job.
		$connection = $this->connection( $server );
		$connection->ask( "delete $id\r\n" );
		$connection->forget( $id );
		$this->incrStats( 'acks', $this->type );
	}

	protected function doDeduplicateRootJob( IJobSpecification $job ) {
		if ( !$job->hasRootJobParams() ) {
			throw new JobQueueError( 'Cannot register root job; missing parameters.' );
		}
		foreach ( $this->takers() as $connection ) {
			$words = [ $this->tube(), ...$this->root( $job ) ];
			[ $line ] = $connection->ask( vsprintf( "root %s %s %s\r\n", $words ) );
			return substr( $line, 0, 5 ) === 'ROOT ';
		}
		throw new JobQueueReadOnlyError( 'Job queue is read-only: ' . self::NOT_TAKEN );
	}

	/** Returns false, because the daemon drops superseded jobs itself; they are counted as `dupe_pops` all the same. */
	protected function doIsRootJobOldDuplicate( IJobSpecification $job ) {
		return false;
	}

	/**
	 * Returns the counts of this wiki's queues, with one request per server.
	 *
	 * @param string[] $types
	 * @return array[] (type => (state => count))
	 */
	private function counts( array $types ): array {
		$none = [ 'ready' => 0, 'reserved' => 0, 'delayed' => 0, 'buried' => 0 ];
		$types = array_values( $types );
		$counts = array_fill_keys( $types, $none );
		$requests = '';
		foreach ( $types as $type ) {
			$requests .= "stats-tube {$this->tube( $type )}\r\n";
		}
		foreach ( $this->connections() as $connection ) {
			foreach ( $connection->askMany( $requests, count( $types ) ) as $index => [ , $yaml ] ) {
				// A queue without jobs has no tube.
				foreach ( $yaml === null ? [] : array_keys( $none ) as $state ) {
					$counts[$types[$index]][$state] += PoolCounterJobsConnection::figure( $yaml, "current-jobs-$state" );
				}
			}
		}
		return $counts;
	}

	private function countOf( string ...$states ): int {
		return array_sum( array_intersect_key( $this->counts( [ $this->type ] )[$this->type], array_flip( $states ) ) );
	}

	protected function doIsEmpty() {
		return $this->doGetSize() === 0;
	}

	protected function doGetSize() {
		return $this->countOf( 'ready' );
	}

	/** Returns the number of claimed jobs, which in MediaWiki includes abandoned ones. */
	protected function doGetAcquiredCount() {
		return $this->countOf( 'reserved', 'buried' );
	}

	protected function doGetDelayedCount() {
		return $this->countOf( 'delayed' );
	}

	protected function doGetAbandonedCount() {
		return $this->countOf( 'buried' );
	}

	protected function doGetSiblingQueuesWithJobs( array $types ) {
		return array_keys( array_filter( $this->doGetSiblingQueueSizes( $types ) ) );
	}

	protected function doGetSiblingQueueSizes( array $types ) {
		return array_map( static function ( $counts ) {
			return $counts['ready'];
		}, $this->counts( $types ) );
	}

	public function getCoalesceLocationInternal() {
		$servers = $this->servers;
		sort( $servers );
		return 'PoolCounter:' . implode( ',', $servers );
	}

	protected function doDelete() {
		foreach ( $this->connections() as $connection ) {
			$tube = $this->tube();
			$requests = [];
			// Deletes the jobs claimed by this process; an older daemon does not clear reserved jobs.
			foreach ( $connection->claims( $tube ) as $id ) {
				$requests[] = "delete $id\r\n";
				$connection->forget( $id );
			}
			foreach ( [ 'ready', 'delayed', 'buried', 'reserved' ] as $state ) {
				$requests[] = "clear $tube $state\r\n";
			}
			foreach ( $connection->askMany( implode( '', $requests ), count( $requests ) ) as $index => [ $line ] ) {
				$isDone = in_array( explode( ' ', $line )[0], [ 'CLEARED', 'DELETED', 'NOT_FOUND' ], true );
				if ( !$isDone && $index < count( $requests ) - 1 ) {
					throw new JobQueueError( "The job queue refuses to delete: $line" );
				}
			}
		}
	}

	public function getAllQueuedJobs() {
		return $this->jobs( 'ready' );
	}

	public function getAllDelayedJobs() {
		return $this->jobs( 'delayed' );
	}

	public function getAllAcquiredJobs() {
		return $this->jobs( 'reserved', 'buried' );
	}

	public function getAllAbandonedJobs() {
		return $this->jobs( 'buried' );
	}

	/**
	 * Yields the jobs in these states, by number, in pages; may miss or include jobs that come or go meanwhile.
	 */
	private function jobs( string ...$states ): Iterator {
		foreach ( $this->connections() as $server => $connection ) {
			foreach ( $states as $state ) {
				$after = 0;
				do {
					$request = "list-jobs {$this->tube()} $state " . self::PAGE . " after=$after\r\n";
					preg_match_all( '/^- id: (\d+)/m', $connection->ask( $request )[1] ?? '', $found );
					$peeks = array_map( static function ( $id ) {
						return "peek $id\r\n";
					}, $found[1] );
					foreach ( $connection->askMany( implode( '', $peeks ), count( $peeks ) ) as $index => [ , $body ] ) {
						// The job may be gone since the listing.
						if ( $body !== null ) {
							yield $this->jobOf( $server, (int)$found[1][$index], $body );
						}
					}
					$after = end( $found[1] );
				} while ( count( $found[1] ) === self::PAGE );
			}
		}
	}
}
