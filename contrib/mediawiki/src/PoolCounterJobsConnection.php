<?php
/**
 * @file
 * @license MIT OR Apache-2.0
 */

use PoolCounterJobs\JobQueueConnectionError;

require_once __DIR__ . '/names.php';

/**
 * A connection to the jobs service of a daemon: one for each server and process, made when it is first needed. It knows how
 * replies are framed, and nothing of MediaWiki's jobs.
 *
 * After an error the connection is closed: what the daemon has reserved for this process it gives to others then, and a reply
 * that comes late is never taken for that to another request.
 */
class PoolCounterJobsConnection {
	/** Where a server listens that is named without a port. */
	private const PORT = 11300;
	/** For so many seconds a server that did not answer is not asked again; twice as long each time, up to the longest. */
	private const AWAY = 2.0;
	private const LONGEST_AWAY = 30.0;
	/** Under this and its name APCu has it for all processes, for so many seconds. */
	private const AWAY_KEY = 'PoolCounterJobs:away:';
	private const AWAY_KNOWN = 120;
	/** After so many seconds it is asked again whether it takes jobs. */
	private const STATS = 2.0;
	/** A connection that was used a shorter time ago, in seconds, is not looked at first. */
	private const FRESH = 0.1;
	/** The longest line of a reply. */
	private const LONGEST_LINE = 65536;

	/** @var self[] The open connections by server */
	private static $open = [];
	/** @var array[] Until when servers are not asked again, for how many seconds that is, and why, by server */
	private static $away = [];
	/** @var int The process that they belong to */
	private static $process = 0;

	/** @var string */
	private $server;
	/** @var resource */
	private $socket;
	/** @var float */
	private $timeout;
	/** @var float */
	private $lastUse = 0.0;
	/** @var int The longest body that the daemon takes */
	public $maxBytes = 65535;
	/** @var bool Whether the daemon takes no jobs */
	private $isDraining = false;
	/** @var float When it said so, or that it does */
	private $statsAt;
	/** @var string[] The tubes of the jobs that this process has claimed, by their numbers */
	private $claims = [];
	/** @var string The tube that is watched */
	private $watched = 'default';
	/** @var bool[] What was said once, by its text */
	private $said = [];

	/**
	 * Returns this process's connection to a server.
	 *
	 * @param string $server host, host:port, [IPv6]:port or unix:path
	 * @param float $connectTimeout in seconds
	 * @param float $timeout of a request, in seconds
	 * @return self
	 * @throws JobQueueConnectionError when it is away, or is no poolcounter
	 */
	public static function to( string $server, float $connectTimeout, float $timeout ): self {
		if ( self::$process !== getmypid() ) {
			// What a forked child has inherited belongs to its parent.
			self::$open = [];
			self::$process = getmypid();
		}
		$connection = self::$open[$server] ?? null;
		if ( $connection && !$connection->isClosed() ) {
			return $connection;
		}
		unset( self::$open[$server] );
		[ $until, , $why ] = self::away( $server );
		if ( microtime( true ) < $until ) {
			throw new JobQueueConnectionError( $why );
		}
		try {
			self::$open[$server] = new self( $server, $connectTimeout, $timeout );
		} catch ( JobQueueConnectionError $e ) {
			self::noteAway( $server, $e->getMessage() );
			throw $e;
		}
		if ( $until ) {
			unset( self::$away[$server] );
			if ( self::hasApcu() ) {
				apcu_delete( self::AWAY_KEY . $server );
			}
		}
		return self::$open[$server];
	}

	/** Returns until when a server is not asked again, for how many seconds that is, and why. */
	private static function away( string $server ): array {
		$known = self::hasApcu() ? apcu_fetch( self::AWAY_KEY . $server ) : self::$away[$server] ?? false;
		return is_array( $known ) ? $known : [ 0, 0, '' ];
	}

	private static function noteAway( string $server, string $why ): void {
		[ $until, $seconds ] = self::away( $server );
		if ( microtime( true ) < $until ) {
			// Another process has noted it.
			return;
		}
		$seconds = min( max( 2 * $seconds, self::AWAY ), self::LONGEST_AWAY );
		$away = [ microtime( true ) + $seconds, $seconds, $why ];
		self::$away[$server] = $away;
		if ( self::hasApcu() ) {
			apcu_store( self::AWAY_KEY . $server, $away, self::AWAY_KNOWN );
		}
	}

	private static function hasApcu(): bool {
		return function_exists( 'apcu_enabled' ) && apcu_enabled();
	}

	private function __construct( string $server, float $connectTimeout, float $timeout ) {
		$this->server = $server;
		$this->timeout = $timeout;
		$context = stream_context_create( [ 'socket' => [ 'tcp_nodelay' => true ] ] );
		$begun = microtime( true );
		// What is wrong is told by the exception.
		// phpcs:ignore Generic.PHP.NoSilencedErrors
		$socket = @stream_socket_client(
			self::address( $server ), $number, $words, $connectTimeout, STREAM_CLIENT_CONNECT, $context
		);
		if ( !$socket ) {
			throw new JobQueueConnectionError( "The job queue at $server cannot be reached: $words" );
		}
		$this->socket = $socket;
		// One that hangs is connected to by its system.
		self::setTimeout( $socket, max( 0.01, $connectTimeout - ( microtime( true ) - $begun ) ) );
		// A plain beanstalkd does not know the first, and would take the body of a put-many for commands.
		[ $extensions, $stats ] = $this->askMany( "extensions\r\nstats\r\n", 2 );
		if ( $extensions[1] === null || $stats[1] === null || !preg_match( '/^- put-many\r?$/m', $extensions[1] ) ) {
			$this->fail( "is no poolcounter: it answers {$extensions[0]}" );
		}
		self::setTimeout( $socket, $timeout );
		$this->maxBytes = (int)( self::figure( $stats[1], 'max-job-size' ) ?? $this->maxBytes );
		$this->noteStats( $stats[1] );
	}

	/**
	 * @param resource $socket
	 * @param float $seconds
	 */
	private static function setTimeout( $socket, float $seconds ): void {
		stream_set_timeout( $socket, (int)$seconds, (int)( fmod( $seconds, 1 ) * 1e6 ) );
	}

	private function noteStats( string $stats ): void {
		$this->isDraining = (bool)preg_match( '/^draining: true/m', $stats );
		$this->statsAt = microtime( true );
	}

	/**
	 * Returns whether the daemon takes no jobs, as it was a moment ago.
	 */
	public function isDraining(): bool {
		if ( microtime( true ) - $this->statsAt > self::STATS ) {
			$this->noteStats( (string)$this->ask( "stats\r\n" )[1] );
		}
		return $this->isDraining;
	}

	/**
	 * Notes that the daemon has refused a job because it drains.
	 */
	public function noteDraining(): void {
		$this->isDraining = true;
		$this->statsAt = microtime( true );
	}

	/**
	 * Returns the numbers of the jobs of a tube that this process has claimed.
	 *
	 * @return int[]
	 */
	public function claims( string $tube ): array {
		return array_keys( $this->claims, $tube, true );
	}

	/**
	 * Notes that a job is not claimed any more.
	 */
	public function forget( int $id ): void {
		unset( $this->claims[$id] );
	}

	private static function address( string $server ): string {
		if ( substr( $server, 0, 5 ) === 'unix:' ) {
			return 'unix://' . substr( $server, 5 );
		}
		$isWhole = preg_match( '/^(\[[^\]]*\]|[^:]*):\d+$/', $server );
		$host = substr_count( $server, ':' ) > 1 && $server[0] !== '[' ? "[$server]" : $server;
		return 'tcp://' . ( $isWhole ? $server : $host . ':' . self::PORT );
	}

	/**
	 * Returns a number of a reply in YAML, or null if it has none of this name.
	 */
	public static function figure( string $yaml, string $name ): ?int {
		return preg_match( '/^' . preg_quote( $name, '/' ) . ': (\d+)/m', $yaml, $found ) ? (int)$found[1] : null;
	}

	/**
	 * Sends a request, and returns its reply: the line without its end, and the body or null.
	 *
	 * @return array
	 */
	public function ask( string $request ): array {
		return $this->askMany( $request, 1 )[0];
	}

	/**
	 * Sends several requests at once, and returns so many replies.
	 *
	 * @return array[]
	 */
	public function askMany( string $requests, int $count ): array {
		$this->send( $requests );
		$replies = [];
		while ( count( $replies ) < $count ) {
			$replies[] = $this->reply();
		}
		$this->lastUse = microtime( true );
		return $replies;
	}

	/**
	 * Puts jobs, all or none, and returns what was said of each, or OUT_OF_MEMORY of all of them together. INTERNAL_ERROR is said of each.
	 *
	 * @param string[] $puts each a put-job line with its body
	 * @return string[]
	 */
	public function putMany( array $puts ): array {
		$this->send( 'put-many ' . count( $puts ) . "\r\n" . implode( '', $puts ) );
		$lines = [];
		do {
			$lines[] = $this->reply()[0];
			// These two are the answer to all of them.
			$isForAll = $lines === [ 'OUT_OF_MEMORY' ] || $lines === [ 'INTERNAL_ERROR' ];
		} while ( !$isForAll && count( $lines ) < count( $puts ) );
		$this->lastUse = microtime( true );
		return $lines === [ 'INTERNAL_ERROR' ] ? array_fill( 0, count( $puts ), 'INTERNAL_ERROR' ) : $lines;
	}

	/**
	 * Reserves the next job of a tube without waiting, and returns its number and body; null if none is ready. The first time,
	 * `$once` is said before that.
	 *
	 * @param string $tube
	 * @param string[] $once requests with a reply of a line
	 * @return array|null
	 */
	public function reserve( string $tube, array $once = [] ): ?array {
		$once = array_filter( $once, function ( $request ) {
			return !isset( $this->said[$request] );
		} );
		$requests = $once;
		if ( $this->watched !== $tube ) {
			array_push( $requests, "watch $tube\r\n", "ignore {$this->watched}\r\n" );
		}
		$requests[] = "reserve-with-timeout 0\r\n";
		$replies = $this->askMany( implode( '', $requests ), count( $requests ) );
		foreach ( $once as $request ) {
			$this->said[$request] = true;
		}
		$this->watched = $tube;
		[ $line, $body ] = end( $replies );
		if ( $body !== null ) {
			$id = (int)explode( ' ', $line )[1];
			$this->claims[$id] = $tube;
			return [ $id, $body ];
		}
		if ( $line !== 'TIMED_OUT' && $line !== 'DEADLINE_SOON' ) {
			$this->fail( "answers $line to a reserve" );
		}
		return null;
	}

	/** Returns whether the daemon has closed it, so that nothing was lost but what it held. */
	private function isClosed(): bool {
		if ( microtime( true ) - $this->lastUse < self::FRESH ) {
			return false;
		}
		[ $readable, $none, $others ] = [ [ $this->socket ], null, null ];
		// Nothing was asked for, so this is the end, or worse. A signal in between is neither.
		// phpcs:ignore Generic.PHP.NoSilencedErrors
		return @stream_select( $readable, $none, $others, 0 ) > 0;
	}

	private function send( string $bytes ): void {
		while ( $bytes !== '' ) {
			// phpcs:ignore Generic.PHP.NoSilencedErrors
			$count = @fwrite( $this->socket, $bytes );
			if ( !$count ) {
				$this->fail( 'does not read' );
			}
			$bytes = (string)substr( $bytes, $count );
		}
	}

	/** Returns the next reply: its line, and its body or null. */
	private function reply(): array {
		$line = fgets( $this->socket, self::LONGEST_LINE );
		if ( $line === false || substr( $line, -2 ) !== "\r\n" ) {
			$hangs = stream_get_meta_data( $this->socket )['timed_out'];
			if ( $hangs ) {
				self::noteAway( $this->server, "The job queue at {$this->server} does not answer" );
			}
			$this->fail( $hangs ? 'does not answer' : 'has closed the connection' );
		}
		$line = substr( $line, 0, -2 );
		if ( !preg_match( '/^(?:OK|(?:RESERVED|FOUND) \d+) (\d+)$/', $line, $found ) ) {
			return [ $line, null ];
		}
		$left = (int)$found[1] + 2;
		$body = '';
		while ( $left > 0 ) {
			$part = fread( $this->socket, $left );
			if ( $part === false || $part === '' ) {
				$this->fail( 'ends in the middle of a reply' );
			}
			$body .= $part;
			$left -= strlen( $part );
		}
		return [ $line, substr( $body, 0, -2 ) ];
	}

	/**
	 * Closes the connection.
	 *
	 * @throws JobQueueConnectionError
	 * @return never
	 */
	private function fail( string $what ): void {
		fclose( $this->socket );
		unset( self::$open[$this->server] );
		throw new JobQueueConnectionError( "The job queue at {$this->server} $what" );
	}
}
