<?php
/**
 * Names of MediaWiki's classes, which have a namespace since 1.44 or 1.40; here they are PoolCounterJobs\NAME in all versions.
 *
 * @file
 * @license MIT OR Apache-2.0
 */

foreach ( [
	'MediaWiki\JobQueue' => [ 'Job', 'JobQueue', 'JobQueueGroup', 'RunnableJob', 'IJobSpecification' ],
	'MediaWiki\JobQueue\Exceptions' => [ 'JobQueueError', 'JobQueueConnectionError', 'JobQueueReadOnlyError' ],
	'MediaWiki\JobQueue\Jobs' => [ 'DuplicateJob' ],
	'MediaWiki\Exception' => [ 'MWExceptionHandler' ],
	'MediaWiki\WikiMap' => [ 'WikiMap' ],
] as $poolCounterNamespace => $poolCounterNames ) {
	foreach ( $poolCounterNames as $poolCounterName ) {
		$poolCounterNew = "$poolCounterNamespace\\$poolCounterName";
		$poolCounterHas = class_exists( $poolCounterNew ) || interface_exists( $poolCounterNew );
		class_alias( $poolCounterHas ? $poolCounterNew : $poolCounterName, "PoolCounterJobs\\$poolCounterName" );
	}
}
