<?php
// Three wikis in one directory. FARM is that directory, JOBS the addresses of the daemons, QUEUE the kind of their
// queue.

$wgDBname = defined( 'MW_WIKI_NAME' ) ? MW_WIKI_NAME : 'wikia';
$wgLocalDatabases = [ 'wikia', 'wikib', 'zh-min-nan.wiki' ];
$wgDBtype = 'sqlite';
$wgDBserver = $wgDBuser = $wgDBpassword = '';
$wgSQLiteDataDir = getenv( 'FARM' ) . '/data';
$wgSitename = $wgDBname;
$wgMetaNamespace = 'Project';
$wgServer = 'http://localhost';
$wgScriptPath = '/w';
$wgSecretKey = 'of a test';
$wgMainCacheType = CACHE_NONE;
$wgCacheDirectory = getenv( 'FARM' ) . '/cache';
$wgDiff3 = '';
// Jobs run only in a runner.
$wgJobRunRate = 0;

$wgHooks['AlternateUserMailer'][] = static function ( $headers, $to ) {
	file_put_contents( getenv( 'FARM' ) . '/mails', "{$to[0]->address}\n", FILE_APPEND );
	return false;
};

/** A job that notes that it ran. */
class NoteJob extends Job implements GenericParameterJob {
	public function __construct( array $params ) {
		parent::__construct( 'note', $params );
		$this->removeDuplicates = true;
	}

	public function run() {
		if ( $this->params['readOnly'] ?? false ) {
			throw new Wikimedia\Rdbms\DBReadOnlyError( null, 'the primary is being switched' );
		}
		echo $this->params['prints'] ?? '';
		usleep( $this->params['usleep'] ?? 0 );
		$line = "{$this->params['n']} {$GLOBALS['wgDBname']} " . getmypid() . "\n";
		file_put_contents( getenv( 'FARM' ) . '/notes', $line, FILE_APPEND | LOCK_EX );
		if ( $this->params['fails'] ?? false ) {
			$this->setLastError( "it is to fail\nand does" );
			return false;
		}
		return true;
	}
}
$wgJobClasses['note'] = NoteJob::class;

/** A job that sends a mail. MediaWiki's own of this type needs addresses as objects, which can no longer be pushed. */
class MailJob extends Job implements GenericParameterJob {
	public function __construct( array $params ) {
		parent::__construct( 'sendMail', $params );
	}

	public function run() {
		$from = new MailAddress( 'wiki@example.org' );
		return UserMailer::send( new MailAddress( $this->params['to'] ), $from, 'subject', "The body of a mail.\n" )->isOK();
	}
}
$wgJobClasses['sendMail'] = MailJob::class;

if ( getenv( 'QUEUE' ) === 'database' ) {
	// The settings of MediaWiki's installer.
	$wgJobTypeConf['default'] = [
		'class' => 'JobQueueDB',
		'claimTTL' => 3600,
		'server' => [
			'type' => 'sqlite',
			'dbname' => "{$wgDBname}_jobqueue",
			'tablePrefix' => '',
			'variables' => [ 'synchronous' => 'NORMAL' ],
			'dbDirectory' => $wgSQLiteDataDir,
			'trxMode' => 'IMMEDIATE',
			'flags' => 0,
		],
	];
} else {
	wfLoadExtension( 'PoolCounterJobs', getenv( 'EXTENSION' ) . '/extension.json' );
	$wgAutoloadClasses['CountedQueue'] = __DIR__ . '/CountedQueue.php';
	$wgJobTypeConf['default'] = [
		'class' => 'CountedQueue',
		'servers' => explode( ' ', getenv( 'JOBS' ) ),
		'claimTTL' => 600,
		'retry' => [ 1, 1, 1 ],
	];
}
// Settings of the present test.
if ( file_exists( getenv( 'FARM' ) . '/settings.php' ) ) {
	require getenv( 'FARM' ) . '/settings.php';
}
