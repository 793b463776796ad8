<?php
// For MediaWiki's own tests with PHPUnit of Debian: what MediaWiki takes from Composer besides, as far as the test of queues needs it.

namespace Wikimedia;

require_once 'Hamcrest/autoload.php';

/** Gives access to what is not public of an object, or of a class. */
class TestingAccessWrapper {
	private $class;
	private $object;

	private function __construct( string $class, ?object $object ) {
		$this->class = $class;
		$this->object = $object;
	}

	public static function newFromObject( $object ) {
		return new self( get_class( $object ), $object );
	}

	public static function newFromClass( $class ) {
		return new self( $class, null );
	}

	public static function construct( string $class, ...$arguments ) {
		$object = ( new \ReflectionClass( $class ) )->newInstanceWithoutConstructor();
		$wrapper = new self( $class, $object );
		$wrapper->__construct( ...$arguments );
		return $object;
	}

	public static function constant( string $class, string $name ) {
		return ( new \ReflectionClassConstant( $class, $name ) )->getValue();
	}

	/** Finds a property or a method where it is declared: what is private in a parent is not seen from below. */
	private function find( string $reflection, string $name ) {
		$class = $this->class;
		while ( !method_exists( $class, $name ) && !property_exists( $class, $name ) && get_parent_class( $class ) ) {
			$class = get_parent_class( $class );
		}
		$found = new $reflection( $class, $name );
		$found->setAccessible( true );
		return $found;
	}

	public function __call( $name, $arguments ) {
		return $this->find( \ReflectionMethod::class, $name )->invokeArgs( $this->object, $arguments );
	}

	public function &__get( $name ) {
		$value = $this->find( \ReflectionProperty::class, $name )->getValue( $this->object );
		return $value;
	}

	public function __set( $name, $value ) {
		$this->find( \ReflectionProperty::class, $name )->setValue( $this->object, $value );
	}

	public function __isset( $name ) {
		return isset( $this->$name );
	}
}

require getenv( 'MW_INSTALL_PATH' ) . '/tests/phpunit/bootstrap.php';
