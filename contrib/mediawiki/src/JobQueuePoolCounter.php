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
 * The job queue in the jobs service of a poolcounter daemon.
 *
 * A queue is the tube `wiki/type`. A job that is popped belongs to the connection of this process: it is given to others when
 * that ends, or when the claim's time is over. After `maxTries` of those it is buried, which MediaWiki calls abandoned.
 *
 * Of several servers each wiki has its own, by the order in which MediaWiki asks servers of PoolCounter; jobs go to the next
 * while that is away or drains, and all that are there are asked for jobs and counts.
 */
class JobQueuePoolCounter extends JobQueue {
	/** What a put-many may have. */
	private const MANY = 1000;
	private const MANY_BYTES = 16 << 20;
	/** How many jobs an iterator reads at a time. */
	private const PAGE = 100;
	/** What jobs have that have no other priority; mails are before them. */
	private const PRIORITY = 65536;
	private const PRIORITIES = [ 'sendMail' => 1000, 'enotifNotify' => 1000, 'EchoNotificationJob' => 1000 ];
	/** The longest claim: "for ever" ends with the connection. */
	private const FOREVER = 4294967295;
	/** Longer bodies are compressed, and those that begin so were. */
	private const COMPRESS_FROM = 4096;
	private const COMPRESSED = "\x1f\x8b";
	private const NOT_TAKEN = 'it takes no jobs at the moment.';
	/** The longest body after decompression. */
	private const LONGEST_BODY = 512 << 20;

	/** @var string The ID of the wiki */
	private $wiki;
	/** @var string What jobs are signed with; they are not if it is empty */
	private $secret;

	/** @var string[] */
	private $servers;
	/** @var float */
	private $connectTimeout;
	/** @var float */
	private $timeout;
	/** @var int[] By type */
	private $priorities;
	/** @var array|false Seconds until the second try, by what each wait is longer than the one before, and the longest */
	private $retry;

	/**
	 * @param array $params those of JobQueue, and
	 *  - servers : one or several of host, host:port, [IPv6]:port and unix:path
	 *  - connectTimeout : seconds [default: 0.5]
	 *  - timeout : seconds until a request is answered [default: 5]
	 *  - priorities : (type => number); lower ones are first [default: mails are]
	 *  - retry : [ first, factor, max ], or false to leave it to the daemon's operator [default: [ 30, 4, 3600 ]]
	 *  - secret : what jobs are signed with [default: $wgJobQueuePoolCounterSecret]
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
	 * Returns servers in the order in which they are asked for a key: that of the hash of both.
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
	 * Returns a part of a tube's name: what cannot be in one is written as + and two digits for each byte.
	 */
	public static function partOfTube( string $name ): string {
		return preg_replace_callback( '/[^A-Za-z0-9;.$_()-]|^-/', static function ( $found ) {
			return '+' . strtoupper( implode( '+', str_split( bin2hex( $found[0] ), 2 ) ) );
		}, $name );
	}

	private function tube( ?string $type = null ): string {
		return self::partOfTube( $this->wiki ) . '/' . self::partOfTube( $type ?? $this->type );
	}

	/** There is one order, which is as good as any to those who ask for "random". */
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
	 * Returns why nothing can be pushed: that it is so configured, that no daemon is there, or that none takes jobs.
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
	 * Yields the connections to the servers that are there, at least one, by server.
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
	 * Yields the connections to the servers that are there and take jobs, which may be none.
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
					// The next server takes it.
					$index = array_keys( $batch )[$position];
					$bodies[$index] = $fitting[$index];
				}
			}
			if ( $large !== [] ) {
				$this->incrStats( 'oversized_inserts', $this->type, count( $large ) );
				// Thrown, it would keep the other types of this request from being pushed.
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
	 * Fails if jobs cannot be pushed all or none.
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
	 * Returns puts by the index of their jobs, in parts that can be sent at once.
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
	 * Counts what came of jobs that were pushed, and returns the positions of those that go to the next server: this one drains, or may
	 * not have the jobs any more. It may have kept them nevertheless.
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
	 * Returns the signature of a job's root, and its time.
	 */
	private function root( IJobSpecification $job ): array {
		$params = $job->getRootJobParams();
		$signature = (string)$params['rootJobSignature'];
		// It is a hash unless an extension has its own idea.
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
			// It has strings that are no text.
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

	/** What is signed is the wiki and the body as it is without the signature. */
	private function signatureOf( string $body ): string {
		return hash_hmac( 'sha256', "{$this->wiki}\n$body", $this->secret );
	}

	/**
	 * Returns the fields of a job's body: type, params and queued.
	 *
	 * @throws JobQueueError for what this class has not written, or has not signed
	 */
	public function decode( string $body ): array {
		if ( substr( $body, 0, 2 ) === self::COMPRESSED ) {
			if ( !function_exists( 'gzdecode' ) ) {
				throw new JobQueueError( 'This job is compressed, and PHP has no zlib here.' );
			}
			// What is wrong is told below.
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
			// Nobody makes objects here who can reach the daemon's port.
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
	 * Returns the job of these fields, which another process may have claimed.
	 */
	public function jobFrom( array $fields ): RunnableJob {
		$job = $this->factoryJob( $fields['type'], $fields['params'] );
		$job->setMetadata( 'timestamp', $fields['queued'] );
		return $job;
	}

	protected function doPop() {
		foreach ( $this->connections() as $server => $connection ) {
			$found = $connection->reserve( $this->tube(), $this->once() );
			if ( !$found ) {
				continue;
			}
			try {
				$job = $this->jobOf( $server, ...$found );
			} catch ( Exception $e ) {
				$text = substr( $e->getMessage(), 0, 4096 );
				// Another attempt would be in vain.
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

	/**
	 * Returns what a connection that pops jobs says once.
	 *
	 * @return string[]
	 */
	private function once(): array {
		$name = preg_replace( '/[^\x21-\x7e]/', '', substr( (string)gethostname(), 0, 40 ) );
		return array_merge( [ "identify mediawiki:$name:" . getmypid() . "\r\n" ], $this->settings() );
	}

	/**
	 * Returns the requests that say how jobs of this wiki are tried again.
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
	 * Tells the daemons how jobs of this wiki are tried again, for a runner that does not pop them.
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
		// NOT_FOUND: the claim's time was over, and others have it.
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

	/** The daemon has dropped those that are superseded. */
	protected function doIsRootJobOldDuplicate( IJobSpecification $job ) {
		return false;
	}

	/**
	 * Returns the counts of queues of this wiki: in one request for each server.
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
				// A queue that has no jobs is no tube.
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

	/** MediaWiki counts those that are abandoned among them. */
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
			// Those of this process; an older daemon does not take the jobs of others from them.
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
	 * Yields the jobs in these states, by number, in pages: what comes and goes meanwhile may be among them or not.
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
						// It may be gone since it was listed.
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
