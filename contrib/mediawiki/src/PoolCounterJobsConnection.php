<?php
/**
 * @file
 * @license MIT OR Apache-2.0
 */

use PoolCounterJobs\JobQueueConnectionError;

require_once __DIR__ . '/names.php';

/**
 * Connection to the jobs service of a daemon: one per server and process, made on first use. It handles the framing of replies,
 * and is independent of MediaWiki's jobs.
 *
 * After an error the connection is closed: the daemon releases the jobs reserved on it, and a late reply is never taken for the
 * reply to another request.
 */
class PoolCounterJobsConnection {
	/** Default port of a server. */
	private const PORT = 11300;
	/** Seconds for which a failed server is skipped; doubled after each further failure, up to the longest. */
	private const AWAY = 2.0;
	private const LONGEST_AWAY = 30.0;
	/** Key prefix in APCu, which shares failures of servers among all processes, and the lifetime in seconds. */
	private const AWAY_KEY = 'PoolCounterJobs:away:';
	private const AWAY_KNOWN = 120;
	/** Seconds until a draining server is asked again if it accepts jobs. */
	private const STATS = 2.0;
	/** Seconds since the last use up to which a connection is reused without a check that it is open. */
	private const FRESH = 0.1;
	/** Longest line of a reply, in bytes. */
	private const LONGEST_LINE = 65536;

	/** @var self[] Open connections by server */
	private static $open = [];
	/** @var array[] End of the pause of failed servers, its length in seconds, and the reason, by server */
	private static $away = [];
	/** @var int Process that owns the connections */
	private static $process = 0;

	/** @var string */
	private $server;
	/** @var resource */
	private $socket;
	/** @var float */
	private $timeout;
	/** @var float */
	private $lastUse = 0.0;
	/** @var int Longest body that the daemon accepts, in bytes */
	public $maxBytes = 65535;
	/** @var bool True if the daemon accepts no jobs */
	private $isDraining = false;
	/** @var float Time of the last reply about that */
	private $statsAt;
	/** @var string[] Tubes of the jobs claimed by this process, by the numbers of the jobs */
	private $claims = [];
	/** @var string Watched tube */
	private $watched = 'default';
	/** @var bool[] Requests sent once per connection, by their text */
	private $said = [];

	/**
	 * Returns this process's connection to a server.
	 *
	 * @param string $server host, host:port, [IPv6]:port or unix:path
	 * @param float $connectTimeout in seconds
	 * @param float $timeout of a request, in seconds
	 * @return self
	 * @throws JobQueueConnectionError if the server is not reachable, or is not a poolcounter daemon
	 */
	public static function to( string $server, float $connectTimeout, float $timeout ): self {
		if ( self::$process !== getmypid() ) {
			// Connections inherited by a forked child belong to its parent.
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

	/** Returns the end of a server's pause, its length in seconds, and the reason. */
	private static function away( string $server ): array {
		$known = self::hasApcu() ? apcu_fetch( self::AWAY_KEY . $server ) : self::$away[$server] ?? false;
		return is_array( $known ) ? $known : [ 0, 0, '' ];
	}

	private static function noteAway( string $server, string $why ): void {
		[ $until, $seconds ] = self::away( $server );
		if ( microtime( true ) < $until ) {
			// Another process has stored it.
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
		// The exception reports the error.
		// phpcs:ignore Generic.PHP.NoSilencedErrors
		$socket = @stream_socket_client(
			self::address( $server ), $number, $words, $connectTimeout, STREAM_CLIENT_CONNECT, $context
		);
		if ( !$socket ) {
			throw new JobQueueConnectionError( "The job queue at $server cannot be reached: $words" );
		}
		$this->socket = $socket;
		// The system accepts connections even to a server that hangs.
		self::setTimeout( $socket, max( 0.01, $connectTimeout - ( microtime( true ) - $begun ) ) );
		// A plain beanstalkd does not know the first request, and would read the body of a put-many as commands.
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
	 * Returns true if the daemon accepts no jobs, according to a recent reply.
	 */
	public function isDraining(): bool {
		if ( microtime( true ) - $this->statsAt > self::STATS ) {
			$this->noteStats( (string)$this->ask( "stats\r\n" )[1] );
		}
		return $this->isDraining;
	}

	/**
	 * Records that the daemon has refused a job because it drains.
	 */
	public function noteDraining(): void {
		$this->isDraining = true;
		$this->statsAt = microtime( true );
	}

	/**
	 * Returns the numbers of the jobs of a tube claimed by this process.
	 *
	 * @return int[]
	 */
	public function claims( string $tube ): array {
		return array_keys( $this->claims, $tube, true );
	}

	/**
	 * Removes a job from the claimed ones.
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
	 * Returns a number from a reply in YAML, or null if it does not contain this name.
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
	 * Sends several requests at once, and returns as many replies.
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
	 * Puts jobs, and returns the reply for each, or a single OUT_OF_MEMORY or NOT_ALLOWED.
	 *
	 * @param string[] $puts each a put-job line with its body
	 * @return string[]
	 */
	public function putMany( array $puts ): array {
		$this->send( 'put-many ' . count( $puts ) . "\r\n" . implode( '', $puts ) );
		$lines = [];
		do {
			try {
				$lines[] = $this->reply()[0];
			} catch ( JobQueueConnectionError $error ) {
				if ( $lines !== [ 'INTERNAL_ERROR' ] ) {
					throw $error;
				}
				// A daemon that gives up its jobs replies once to all, and closes the connection.
				return array_fill( 0, count( $puts ), 'INTERNAL_ERROR' );
			}
			// These two are a single reply to all jobs.
			$isForAll = $lines === [ 'OUT_OF_MEMORY' ] || $lines === [ 'NOT_ALLOWED' ];
		} while ( !$isForAll && count( $lines ) < count( $puts ) );
		$this->lastUse = microtime( true );
		return $lines;
	}

	/**
	 * Reserves the next job of a tube without waiting, and returns its number and body; null if none is ready. Sends `$once` before
	 * the first reserve. Adds the superseded jobs that the daemon has dropped in the tube to `$dropped`.
	 *
	 * @param string $tube
	 * @param int &$dropped
	 * @param string[] $once requests with a reply of one line
	 * @return array|null
	 */
	public function reserve( string $tube, int &$dropped, array $once = [] ): ?array {
		$once = array_filter( $once, function ( $request ) {
			return !isset( $this->said[$request] );
		} );
		$requests = $once;
		if ( $this->watched !== $tube ) {
			array_push( $requests, "watch $tube\r\n", "ignore {$this->watched}\r\n" );
		}
		array_push( $requests, "reserve-with-timeout 0\r\n", "dropped $tube\r\n" );
		$replies = $this->askMany( implode( '', $requests ), count( $requests ) );
		$dropped += self::droppedIn( array_pop( $replies )[0] );
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

	/**
	 * Returns the number of superseded jobs that the daemon has dropped in a tube since a process last asked.
	 */
	public function dropped( string $tube ): int {
		return self::droppedIn( $this->ask( "dropped $tube\r\n" )[0] );
	}

	/** Returns the number in a reply; 0 for that of a daemon that does not know the request or does not allow it. */
	private static function droppedIn( string $line ): int {
		return preg_match( '/^DROPPED (\d+)$/', $line, $found ) ? (int)$found[1] : 0;
	}

	/** Returns true if the daemon has closed the connection, which releases only the jobs reserved on it. */
	private function isClosed(): bool {
		if ( microtime( true ) - $this->lastUse < self::FRESH ) {
			return false;
		}
		[ $readable, $none, $others ] = [ [ $this->socket ], null, null ];
		// No request is open, so input means the end or an error, except after a signal.
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
