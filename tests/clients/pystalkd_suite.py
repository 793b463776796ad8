# The suite of pystalkd, which is in the current directory, with a server on the port of the argument. The suite has
# other ports under a name that is no socket's, so its parts are put together here as it does itself.
import random
import sys
import unittest

import test

# The client strips white space at either end of a body, so tests with random bodies fail now and then.
test.urandom = lambda size: b'.' + random.Random(size).randbytes(size - 2) + b'.'
names = ['test_steps', 'test_wrong_connection', 'test_no_yaml', 'test_temporary_use', 'test_temporary_watch',
         'test_chinese_word', 'test_bytes', 'test_big', 'test_big_bytes', 'test_infinite_loop']
suite = unittest.TestSuite(test.TestBeanstalkd(name, '127.0.0.1', int(sys.argv[1])) for name in names)
sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())
